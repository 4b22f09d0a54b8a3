"""The sidecar in Kubernetes manifests: documents in, documents out. Pure: reads no file, asks no cluster.

| file | holds |
|---|---|
| injection | a whole manifest: which of its documents get the sidecar, and what is wrong with them |
| documents | a manifest as texts of documents, each of which can stay as it is to the byte |
| tree | one document as mappings, lists and scalars that remember how they were written |
| writing | such a tree as YAML or JSON again |
| workloads | where a kind of workload has its pod template |
| sidecar | a pod template with the sidecar in it |
| clashes | what of a pod is in the sidecar's way |
| fragment | the sidecar itself, as `k8s/components` has it too |
| problem | what is wrong with a document |
"""
