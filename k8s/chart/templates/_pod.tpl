{{/*
What a pod needs, for the templates of a chart that lists this one under `dependencies`:

  template:
    metadata:
      labels:
        {{- include "sponson.podLabels" .Subcharts.sponson | nindent 8 }}
    spec:
      initContainers:
        {{- include "sponson.sidecar" .Subcharts.sponson | nindent 8 }}
      volumes:
        {{- include "sponson.volumes" .Subcharts.sponson | nindent 8 }}

The sidecar is the first of the init containers: those after it may call through it.
*/}}

{{- define "sponson.podLabels" -}}
sponson.dev/sidecar: "true"
{{- end }}

{{- define "sponson.labels" -}}
app.kubernetes.io/name: sponson
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: sponson
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sponson.volumes" -}}
- name: sponson-policy
  configMap: {name: {{ .Values.name }}-policy}
- name: sponson-keys
  secret: {secretName: {{ .Values.keysSecret | default (printf "%s-keys" .Values.name) }}}
{{- end }}

{{- define "sponson.sidecar" -}}
- name: sponson
  image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args: [run, --policy=/etc/sponson/policy, --listen=127.0.0.1:4000, --admin=:4001, --linger=0s, --drain={{ .Values.drain }}s]
  ports: [{name: sponson-admin, containerPort: 4001, protocol: TCP}]
  env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - name: OTEL_RESOURCE_ATTRIBUTES
      value: >-
        k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME),k8s.pod.uid=$(POD_UID),k8s.node.name=$(NODE_NAME),k8s.container.name=sponson,service.instance.id=$(POD_NAMESPACE).$(POD_NAME).sponson
    - name: SPONSON_INSTANCE_INDEX
      valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
  envFrom: [{configMapRef: {name: {{ .Values.name }}-env, optional: true}}]
  startupProbe: {httpGet: {path: /startupz, port: sponson-admin}, periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 60}
  readinessProbe: {httpGet: {path: /readyz, port: sponson-admin}, periodSeconds: 5, timeoutSeconds: 2, failureThreshold: 2}
  livenessProbe: {httpGet: {path: /livez, port: sponson-admin}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    readOnlyRootFilesystem: true
    allowPrivilegeEscalation: false
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    - {name: sponson-policy, mountPath: /etc/sponson/policy, readOnly: true}
    - {name: sponson-keys, mountPath: /etc/sponson/keys, readOnly: true}
{{- end }}
