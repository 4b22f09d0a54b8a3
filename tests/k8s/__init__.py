"""What the manifests of `k8s/` and the Dockerfile promise, as far as it can be seen without a cluster.

    tools.py            kubectl and helm, found or fetched; the API's schemas; what is in a manifest
    test_kustomize.py   what kustomize builds: valid, locked down, in the right order, with policies that load
    test_chart.py       the Helm chart: lint, schema of its values, and the same pods as kustomize's
    test_admission.py   the policy that puts the sidecar into pods in the API server: valid, and the same sidecar
    cel.py              the sidecar in that policy's language
    kubelet.py          what kubelet does for a container: volumes, variables
    pod.py              a pod of this machine: namespaces, a read-only root
    image.py            the Dockerfile as steps, and what they make without Docker
    conftest.py         the image that those steps make
    test_image.py       the Dockerfile's promises
    test_container.py   the container's own command line in such a pod, from its start to its end

`make image` runs the Dockerfile's steps, and the last two of these on what they have made.
"""
