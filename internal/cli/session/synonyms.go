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

// wordAdvice maps words of other systems that no command stands for to what does the same, by the path below "berth".
func wordAdvice() map[string]string {
	const (
		edit   = "edit the manifest and run it again, or use 'berth edit service/web'"
		files  = "write 'files: [{path: /etc/app.conf, content: TEXT}]' in a container of the manifest"
		output = "'berth logs' shows the output of a job"
	)
	begin := func(kind string) string { return "'berth init " + kind + "' prints a manifest to begin with" }
	return map[string]string{
		"annotate":          edit,
		"cat":               output,
		"configmap":         files,
		"create cm":         files,
		"create configmap":  files,
		"create cronjob":    begin("cron"),
		"create deployment": begin("service"),
		"create job":        begin("job"),
		"cron create":       begin("cron"),
		"expose":            "write ports in the manifest; 'berth ps -o wide' shows the addresses",
		"label":             edit,
		"label node":        "the labels of a node are those of its agent: berth agent --label KEY=VALUE",
		"output":            output,
		"sacctmgr":          "tokens say who may do what in which cluster: see 'berth token'",
		"salloc":            "write a job ('berth init job'), then use 'berth exec'",
		"sbcast":            "write files or artifacts in the containers of the manifest, or use 'berth cp'",
		"scontrol update": "of a job: 'berth priority', or edit the manifest and run it again; " +
			"of a node: 'berth node drain', 'berth node uncordon'",
		"set":     edit,
		"sreport": "Berth keeps no accounts; 'berth top' shows the present use",
		"srun": "'berth exec TASK -- COMMAND' runs a command in a task; " +
			"for a new task write a job ('berth init job')",
		"sshare":  "Berth has no shares; priority in the manifest orders jobs that wait",
		"suspend": edit,
		"update":  edit,
	}
}

// flagAdvice maps flags of other systems to what does the same, by the path of the command below "berth".
func flagAdvice() map[string]string {
	const (
		named    = "name the objects, or the manifests with -f"
		clusters = "'berth ps' lists all tasks of the cluster; a cluster for each team separates them"
	)
	field := func(name string) string { return "write " + name + " in the step of the manifest" }
	return map[string]string{ //nolint:gosec // flags of commands about tokens, no credentials
		"--all-namespaces":                  "use -A",
		"--namespace":                       "use -n",
		"delete --all":                      named,
		"delete --selector":                 named,
		"delete -l":                         named,
		"dev --listen":                      "--http is the address that it serves",
		"dev --port":                        "--http is the address that it serves",
		"diff -f":                           "leave out -f: berth diff web.yaml",
		"events --watch":                    "use --follow",
		"events -w":                         "use --follow",
		"logs --lines":                      "use --tail",
		"logs --selector":                   "name the service or the job: berth logs service/web",
		"logs -j":                           "name the job: berth logs job/train",
		"logs -l":                           "name the service or the job: berth logs service/web",
		"node drain --delete-emptydir-data": "leave it out: folders of a task end with the task",
		"node drain --force": "leave it out to move the tasks; " +
			"--now stops all of them immediately, before they run elsewhere",
		"node drain --ignore-daemonsets": "leave it out: daemons stay until the other tasks have left",
		"node drain --timeout":           "use --deadline",
		"node drain --reason":            "Berth keeps no reason of a drain; the audit log says who asked for it",
		"ps --me":                        clusters,
		"ps --show-labels":               "-L KEY shows a label as a column, '-o yaml' all of them",
		"ps -j":                          "use --job NAME",
		"ps -t":                          "use --state STATE",
		"ps -u":                          clusters,
		"rollout undo --to-revision":     "use --to; 'berth rollout history' lists the generations",
		"run --array":                    field("count") + "; parallelism limits how many run at a time",
		"run --cpus-per-task":            field("resources.cpu"),
		"run --dependency":               "write needs in the step, or needs: [job/NAME] in the job",
		"run --dry-run":                  "use 'berth plan'",
		"run --exclusive":                "reserve a node (berth reservation create), or request all of its CPUs",
		"run --gpus":                     field("devices"),
		"run --gres":                     field("devices"),
		"run --hold":                     "write hold: true in the manifest; 'berth release' ends it",
		"run --image":                    "write a manifest: see 'berth init service'",
		"run --mem":                      field("resources.memory"),
		"run --partition":                field("placement.pool"),
		"run --priority":                 "write priority in the manifest",
		"run --replicas":                 "write count in the manifest; 'berth scale' changes it",
		"run --time":                     field("time_limit"),
		"run --wait":                     "leave it out: berth run waits; --detach does not",
		"run --watch":                    "leave it out: berth run shows the progress; --detach does not",
		"run -w":                         "leave it out: berth run shows the progress; --detach does not",
		"run --wrap":                     "write the command in the step of the manifest ('berth init job')",
		"run -p":                         field("placement.pool"),
		"run -t":                         field("time_limit"),
		"scale --count":                  "write the count after the name: berth scale web 3",
		"scale --replicas":               "write the count after the name: berth scale web 3",
		"restart --timeout":              "use --detach, and then berth wait --timeout",
		"secret set --from-file":         "use --file",
		"secret set --from-literal":      "give the value on standard input: other users of the machine see arguments",
		"token create --expiration":      "use --ttl",
		"token create --expires":         "use --ttl",
		"token create --duration":        "use --ttl",
	}
}

// Synonyms maps the words of other systems to the command with the same purpose, by its path below "berth".
func Synonyms() map[string]string {
	byCommand := map[string][]string{
		"run":      {"apply", "create", "deploy", "qsub", "replace", "sbatch", "submit", "up", "upgrade"},
		"plan":     {"dry-run", "preview"},
		"validate": {"config", "lint"},
		"simulate": {"forecast", "predict", "what-if", "whatif"},
		"status":   {"deployments", "get", "health", "service", "services", "stat", "job", "jobs"},
		"ps": {
			"alloc", "allocs", "get pod", "get pods", "get po", "get tasks", "list", "ls", "pods", "qstat",
			"sacct", "squeue", "task", "tasks",
		},
		"explain":        {"describe", "sprio", "why"},
		"logs":           {"log", "tail"},
		"events":         {"get events", "history", "monitor"},
		"inspect":        {"scontrol show", "show"},
		"top":            {"seff", "sstat", "stats", "usage"},
		"scale":          {"autoscale", "resize"},
		"stop":           {"cancel", "kill", "qdel", "scancel"},
		"restart":        {"reload", "requeue", "rerun", "rollout restart", "scontrol requeue"},
		"hold":           {"pause", "scontrol hold"},
		"release":        {"scontrol release", "unhold"},
		"priority":       {"nice", "renice"},
		"rollout undo":   {"revert", "rollback", "rollout cancel", "rollout abort", "rollout rollback"},
		"rollout status": {"deployment"},
		"rebalance":      {"balance", "defrag", "optimize"},
		"delete":         {"destroy", "purge", "remove"},
		"edit":           {"patch"},
		"exec":           {"bash", "console", "sh", "shell", "ssh"},
		"port-forward":   {"forward", "proxy"},
		"cp":             {"copy", "scp"},
		"secret set":     {"create secret", "credential", "secret create", "var"},
		"image ls":       {"images"},
		"image pull":     {"pull"},
		"image load":     {"load", "push"},
		"node ls": {
			"get no", "get node", "get nodes", "hosts", "nodes", "sinfo", "scontrol show node", "scontrol show nodes",
		},
		"node cordon":               {"cordon"},
		"node drain":                {"drain", "evacuate"},
		"node forget":               {"forget", "node delete", "node remove", "node rm"},
		"node status":               {"describe no", "describe node", "node inspect", "node show"},
		"node taint":                {"taint"},
		"node uncordon":             {"node resume", "node undrain", "uncordon", "undrain"},
		"token create":              {"join"},
		"pool ls":                   {"node pools", "nodepool", "nodepools", "partition", "partitions"},
		"context add":               {"config set-context"},
		"context ls":                {"config current-context", "config get-contexts", "config view"},
		"context rm":                {"config delete-context", "logout"},
		"context use":               {"config use-context", "use"},
		"server":                    {"master"},
		"reservation create":        {"scontrol create"},
		"reservation ls":            {"scontrol show reservation"},
		"operator debug":            {"debug", "support"},
		"operator snapshot save":    {"backup", "snapshot"},
		"operator snapshot restore": {"restore"},

		"cron ls":   {"get cj", "get cronjob", "get cronjobs", "get crons"},
		"fields":    {"api-resources"},
		"cron":      {"scrontab"},
		"secret ls": {"get secret", "get secrets"},

		// words below a command
		"cron status":      {"cron next"},
		"image prune":      {"image rm", "image gc", "image remove", "image delete"},
		"rebalance status": {"rebalance show"},
		"server members":   {"cluster-info", "operator members", "operator raft", "server list", "server status"},
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
