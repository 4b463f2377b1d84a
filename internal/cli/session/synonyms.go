package session

import "slices"

// isReadingWord reports whether a word reads objects on the command lines of other systems. It is no misspelling of a
// command that changes something: "secret get" does not mean "secret set".
func isReadingWord(word string) bool {
	words := []string{
		"cat", "describe", "dump", "fetch", "find", "get", "info", "inspect", "list", "ls", "print", "read", "show",
		"stat", "status", "view",
	}
	return slices.Contains(words, word)
}

// advice maps words and flags of other systems that no command stands for to what does the same, by the path below
// "berth".
func advice() map[string]string {
	edit := "edit the manifest and run it again, or use 'berth edit service/web'"
	hold := "Berth has no hold: run the manifest when the job may start"
	field := func(name string) string { return "write " + name + " in the step of the manifest" }
	return map[string]string{
		"annotate": edit, "label": edit, "set": edit, "update": edit,
		"scontrol update": "of a job: edit the manifest and run it again; of a node: 'berth node drain', 'berth node " +
			"uncordon'",
		"hold": hold, "scontrol hold": hold, "release": hold, "scontrol release": hold,
		"srun": "'berth exec TASK -- COMMAND' runs a command in a task; for a new task write a job ('berth init job')",

		"scale --replicas": "write the count after the name: berth scale web 3",
		"run --array":      field("count"), "run --time": field("time_limit"), "run --gres": field("devices"),
		"run --gpus":          field("devices"),
		"run --exclusive":     "reserve a node (berth reservation create), or request all of its CPUs",
		"run --dependency":    "run one manifest after the other: berth run a.yaml && berth run b.yaml",
		"run --dry-run":       "use 'berth plan'",
		"run --image":         "write a manifest: see 'berth init service'",
		"run --partition":     field("placement.pool"),
		"run --priority":      "write priority in the manifest",
		"run --cpus-per-task": field("resources.cpu"), "run --mem": field("resources.memory"),
		"node drain --reason":               "Berth keeps no reason of a drain; the audit log says who asked for it",
		"delete --all":                      "name the objects, or the manifests with -f",
		"logs --lines":                      "use --tail",
		"node drain --delete-emptydir-data": "leave it out: folders of a task end with the task",
		"node drain --ignore-daemonsets":    "leave it out: daemons stay until the other tasks have left",
	}
}

// Synonyms maps the words of other systems to the command with the same purpose, by its path below "berth".
func Synonyms() map[string]string {
	byCommand := map[string][]string{
		"run":      {"apply", "create", "deploy", "sbatch", "submit", "up", "upgrade"},
		"plan":     {"dry-run", "preview"},
		"validate": {"config", "lint"},
		"simulate": {"forecast", "predict", "what-if", "whatif"},
		"status":   {"deployments", "get", "health", "service", "services", "stat", "job", "jobs"},
		"ps": {
			"alloc", "allocs", "get pod", "get pods", "get po", "get tasks", "list", "ls", "pods", "queue", "sacct",
			"squeue",
			"task", "tasks",
		},
		"explain":        {"describe", "why"},
		"logs":           {"log", "tail"},
		"events":         {"get events", "history", "monitor"},
		"inspect":        {"scontrol show", "show"},
		"top":            {"stats", "usage"},
		"scale":          {"autoscale", "resize"},
		"stop":           {"cancel", "kill", "scancel"},
		"restart":        {"reload", "requeue", "rerun", "rollout restart", "scontrol requeue"},
		"rollout undo":   {"revert", "rollback", "rollout cancel", "rollout abort", "rollout rollback"},
		"rollout status": {"deployment"},
		"rebalance":      {"balance", "defrag", "optimize"},
		"delete":         {"destroy", "purge", "remove"},
		"edit":           {"patch"},
		"exec":           {"bash", "console", "sh", "shell", "ssh"},
		"port-forward":   {"forward", "proxy"},
		"cp":             {"copy", "scp"},
		"secret set":     {"configmap", "create secret", "credential", "var"},
		"image ls":       {"images"},
		"image pull":     {"pull"},
		"image load":     {"load", "push"},
		"node ls": {
			"get no", "get node", "get nodes", "hosts", "nodes", "sinfo", "scontrol show node", "scontrol show nodes",
		},
		"node cordon":               {"cordon"},
		"node drain":                {"drain", "evacuate"},
		"node forget":               {"forget", "node delete", "node remove", "node rm"},
		"node taint":                {"taint"},
		"node uncordon":             {"node resume", "node undrain", "uncordon", "undrain"},
		"token create":              {"join"},
		"pool ls":                   {"node pools", "nodepool", "nodepools", "partition", "partitions"},
		"context rm":                {"logout"},
		"context use":               {"use"},
		"server":                    {"master"},
		"reservation create":        {"scontrol create"},
		"reservation ls":            {"scontrol show reservation"},
		"operator debug":            {"debug", "support"},
		"operator snapshot save":    {"backup", "snapshot"},
		"operator snapshot restore": {"restore"},

		"cron ls":   {"get cj", "get cronjob", "get cronjobs", "get crons"},
		"fields":    {"api-resources"},
		"cron":      {"scrontab"},
		"init":      {"create cronjob", "create deployment", "create job"},
		"secret ls": {"get secret", "get secrets"},

		// words below a command
		"cron status":      {"cron next"},
		"image prune":      {"image rm", "image gc", "image remove", "image delete"},
		"rebalance status": {"rebalance show"},
		"server members":   {"operator members", "operator raft", "server list", "server status"},
		"server remove":    {"server rm", "server delete", "server leave"},
		"token revoke":     {"token rm", "token delete", "token remove"},
	}
	words := map[string]string{}
	for command, foreign := range byCommand { // order-free: each word belongs to one command
		for _, w := range foreign {
			words[w] = command
		}
	}
	return words
}
