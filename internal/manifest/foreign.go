package manifest

// Words of other systems are recognized, to name their counterpart in Berth.

// foreignKinds maps kinds of Kubernetes manifests to their counterparts in Berth.
func foreignKinds() map[string]string {
	return map[string]string{ //nolint:gosec // words of manifests, no credentials
		"ConfigMap":             "files of a container in a TaskDefinition",
		"CronJob":               "a Cron",
		"DaemonSet":             "a Service with mode: daemon, and its TaskDefinition",
		"Deployment":            "a Service and its TaskDefinition",
		"Ingress":               "a program of your own that follows services (docs/guide/following.md)",
		"Namespace":             "a Cluster",
		"PersistentVolumeClaim": "volumes in a TaskDefinition",
		"Pod":                   "a Service or a Job, and its TaskDefinition",
		"ReplicaSet":            "a Service and its TaskDefinition",
		"Secret":                "`berth secret set`",
		"StatefulSet":           "a Service and its TaskDefinition with sticky volumes",
	}
}

// foreignFile names the system that a document without a kind is of, or is "".
func foreignFile(root *node) string {
	for _, f := range root.fields {
		switch {
		case f.key == "apiVersion":
			return "Kubernetes"
		case f.key == "services" && f.value.shape == shapeObject:
			return "Docker Compose"
		case f.key == "job" && f.value.shape == shapeObject, f.key == "Job" && f.value.shape == shapeObject:
			return "Nomad"
		}
	}
	return ""
}
