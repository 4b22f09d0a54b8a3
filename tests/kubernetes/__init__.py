"""The sidecar in Kubernetes manifests: what is added, what is refused, and that all else stays."""
