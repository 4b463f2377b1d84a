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

// Synonyms maps the words of other systems to the command with the same purpose, by its path below "berth".
func Synonyms() map[string]string {
	byCommand := map[string][]string{
		"run":                       {"apply", "create", "deploy", "sbatch", "submit", "up", "update", "upgrade"},
		"plan":                      {"dry-run", "preview"},
		"validate":                  {"config", "lint"},
		"simulate":                  {"forecast", "predict", "what-if", "whatif"},
		"status":                    {"deployments", "get", "health", "service", "services", "stat", "job", "jobs"},
		"ps":                        {"alloc", "allocs", "list", "ls", "pods", "squeue", "task", "tasks"},
		"explain":                   {"describe", "why"},
		"logs":                      {"log", "tail"},
		"events":                    {"history", "monitor"},
		"inspect":                   {"show"},
		"top":                       {"stats", "usage"},
		"scale":                     {"autoscale", "resize"},
		"stop":                      {"cancel", "kill", "scancel"},
		"restart":                   {"reload", "rerun"},
		"rollout undo":              {"revert", "rollback", "rollout cancel", "rollout abort", "rollout rollback"},
		"rollout status":            {"deployment"},
		"rebalance":                 {"balance", "defrag", "optimize"},
		"delete":                    {"destroy", "purge", "remove"},
		"edit":                      {"patch"},
		"exec":                      {"bash", "console", "sh", "shell", "ssh"},
		"port-forward":              {"forward", "proxy"},
		"cp":                        {"copy", "scp"},
		"secret set":                {"configmap", "credential", "var"},
		"image ls":                  {"images"},
		"image pull":                {"pull"},
		"image load":                {"load", "push"},
		"node ls":                   {"hosts", "nodes", "sinfo"},
		"node cordon":               {"cordon"},
		"node drain":                {"drain", "evacuate"},
		"node forget":               {"forget", "node delete", "node remove", "node rm"},
		"node taint":                {"taint"},
		"node uncordon":             {"uncordon"},
		"token create":              {"join"},
		"pool ls":                   {"node pools", "nodepool", "nodepools"},
		"context rm":                {"logout"},
		"context use":               {"use"},
		"server":                    {"master"},
		"operator debug":            {"debug", "support"},
		"operator snapshot save":    {"backup", "snapshot"},
		"operator snapshot restore": {"restore"},

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
