"""What the manifests of `k8s/` promise, as far as it can be seen without a cluster.

tools.py            kubectl and helm, found or fetched; the API's schemas; what is in a manifest
test_kustomize.py   what kustomize builds: valid, locked down, in the right order, with policies that load
pod.py              a pod of this machine: namespaces, a read-only root, volumes as kubelet mounts them
test_container.py   the container's own command line in such a pod, from its start to its end
"""
