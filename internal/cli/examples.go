package cli

import (
	"maps"
	"strings"

	"github.com/spf13/cobra"
)

// addExamples gives every command its examples. All examples are about one fleet. A test parses each of them.
func addExamples(parent *cobra.Command, examples map[string]string) {
	for _, c := range parent.Commands() {
		if text, ok := examples[strings.TrimPrefix(c.CommandPath(), "berth ")]; ok {
			c.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
		addExamples(c, examples)
	}
}

// commandExamples returns the examples of all commands by their path below "berth".
func commandExamples() map[string]string {
	all := map[string]string{}
	for _, part := range []map[string]string{
		runExamples(), terminalExamples(), secretExamples(), serviceExamples(),
		nodeExamples(), hostExamples(), serveExamples(),
	} {
		maps.Copy(all, part)
	}
	return all
}

func runExamples() map[string]string {
	return map[string]string{
		"run":      "berth run web.yaml\nberth run --timeout 10m manifests/\nberth run manifests/ --prune -l app=shop",
		"converge": "berth converge /etc/berth/manifests --prune\nberth converge manifests/ --check -o json",
		"plan":     "berth plan web.yaml\nberth plan manifests/ --prune -l app=shop",
		"down":     "berth down web.yaml\nberth down -f manifests/ --detach",
		"fields":   "berth fields service.update\nberth fields job.steps.template.containers",
		"init":     "berth init service\nberth init job",
		"validate": "berth validate manifests/\nberth validate --schema",
		"wait": "berth wait web --timeout 5m\nberth wait job/squares task/web.3.0 --for " +
			"running\nberth wait --for gone service/web",
		"status": "berth status\nberth status web\nberth status -n prod\nberth status -l app=shop --watch\n" +
			"berth status cron/backup -o json",
		"ps": "berth ps --service web\nberth ps --node n1 --all\nberth ps -l app=web -L tier --watch\n" +
			"berth ps -o custom-columns=TASK:.id,NODE:.node\nberth ps -o 'jsonpath=$[?@.restarts>3].id'",
		"queue":   "berth queue\nberth queue --cluster lab\nberth queue -o json",
		"explain": "berth explain web\nberth explain web.3.0",
		"logs":    "berth logs web --follow\nberth logs web.3.0 --tail 20\nberth logs web --previous",
		"events": "berth events web\nberth events --follow --service web\nberth events --since 1h --type " +
			"service.rollout-failed,service.rolled-back\nberth events --reason oom --node n1",
		"inspect": "berth inspect service/web\nberth inspect service/web --as-written\nberth inspect " +
			"task/web.3.0 -o 'jsonpath=$.attempts[0].message'",
		"diff":    "berth diff web\nberth diff web 2 5\nberth diff web.yaml",
		"exec":    "berth exec web -it -- sh\nberth exec web.3.0 cat /etc/hosts",
		"version": "berth version -o json",

		"login": "berth login https://s1.example:7071 --context prod --ca-hash 5fbe…\n" +
			"berth login https://s1.example:7071,https://s2.example:7071 --token-file token",
		"context ls":  "berth context ls",
		"context use": "berth context use prod\nberth context use prod -n shop",
		"context add": "berth context add test --addr https://t1.example:7071 --token-file token --ca-file ca.crt",
		"context rm":  "berth context rm test",

		"man": "berth man --dir /usr/local/share/man/man1",
	}
}

func terminalExamples() map[string]string {
	return map[string]string{
		"attach":       "berth attach web --tail 10\nberth attach --signals sum.1.add.0",
		"cp":           "berth cp web.3.0:/var/log/app ./logs\nberth cp config.json web.3.0:/etc/app/",
		"port-forward": "berth port-forward web 8080:http\nberth port-forward web.3.0 9090 0:6060",

		"check pass": "berth check pass worker.1.0 beat",
		"check warn": "berth check warn worker.1.0 beat --message crowded",
		"check fail": "berth check fail worker.1.0 beat --message stuck",
	}
}

// secretExamples returns examples by the path of their command.
func secretExamples() map[string]string {
	all := map[string]string{
		"operator secrets rotate-key": "berth operator secrets rotate-key",
		"operator secrets rekey":      "berth operator secrets rekey\nberth operator secrets rekey --drop",
		"operator secrets keys":       "berth operator secrets keys",
		"operator secrets drop-key":   "berth operator secrets drop-key 3f0c9a1be2d47785",
	}
	for _, text := range []string{
		"berth secret set db-password --file password.txt\nberth secret set tls-key --file server.key " +
			"--keep-newline\n" +
			"berth secret set pull --type registry --registry registry.example:5000 --username ci --file token.txt",
		"berth secret ls -n shop",
		"berth secret rm db-password",
	} {
		words := strings.Fields(text)
		all[words[1]+" "+words[2]] = text
	}
	return all
}

func serviceExamples() map[string]string {
	return map[string]string{
		"scale": "berth scale web\nberth scale web 5\nberth scale web --min 2 --max 10\nberth " +
			"scale web --suspend",
		"stop":            "berth stop web\nberth stop job/squares --detach",
		"start":           "berth start web",
		"restart":         "berth restart web\nberth restart job/squares",
		"retry":           "berth retry job/train\nberth retry train --task train.1.fit.3",
		"hold":            "berth hold job/train",
		"release":         "berth release job/train",
		"priority":        "berth priority job/train 700",
		"delete":          "berth delete web\nberth delete cron/backup pool/gpu\nberth delete -f web.yaml",
		"edit":            "berth edit web",
		"promote":         "berth promote web",
		"rollout status":  "berth rollout status web\nberth rollout status web --watch",
		"rollout pause":   "berth rollout pause web",
		"rollout resume":  "berth rollout resume web",
		"rollout undo":    "berth rollout undo web\nberth rollout undo web --to 3",
		"rollout history": "berth rollout history web --diff",
		"simulate": "berth simulate --remove-node n3\nberth simulate --run web.yaml --add-nodes " +
			"2:like=n1 --show nodes",
		"rebalance":        "berth rebalance\nberth rebalance -n shop --max 10\nberth rebalance --apply",
		"rebalance cancel": "berth rebalance cancel",
		"rebalance list":   "berth rebalance list",
		"rebalance status": "berth rebalance status\nberth rebalance status 12",
		"reservation create": "berth reservation create exam --count 4 --pool gpu --from " +
			"2026-12-01T08:00:00Z --for 8h --cluster physics",
		"reservation ls":   "berth reservation ls",
		"reservation show": "berth reservation show exam",
		"reservation rm":   "berth reservation rm exam",
		"cron ls":          "berth cron ls",
		"definition ls":    "berth definition ls\nberth definition ls web",
		"definition rm":    "berth definition rm web@1 web@2",
		"cron status":      "berth cron status backup",
		"cron run":         "berth cron run backup",
		"cron suspend":     "berth cron suspend backup",
		"cron resume":      "berth cron resume backup",
		"cron history":     "berth cron history backup",
		"volume ls":        "berth volume ls\nberth volume ls --node n1 -o wide",
		"volume prune":     "berth volume prune --dry-run\nberth volume prune --unused-for 720h",
		"volume rm":        "berth volume rm default/db/data --node n1",
		"image load":       "berth image load web.tar",
		"image ls":         "berth image ls",
		"image pull": "berth image pull registry.example/web:2 --node n1,n2\nberth image pull " +
			"registry.example/base:1 --keep",
		"image prune": "berth image prune --dry-run\nberth image prune --node n1 --unused-for 168h",
	}
}

func hostExamples() map[string]string {
	return map[string]string{
		"host ps":        "berth host ps -o wide\nberth host ps --socket /var/lib/berth-2/host.sock",
		"host create":    "berth host create web -f web.yaml",
		"host start":     "berth host start web",
		"host stop":      "berth host stop web",
		"host rm":        "berth host rm web",
		"host replace":   "berth host replace web web-2 -f web-2.yaml",
		"host logs":      "berth host logs web --history 50 -f",
		"host events":    "berth host events\nberth host events -o json",
		"host resources": "berth host resources",
	}
}

func nodeExamples() map[string]string {
	return map[string]string{
		"node ls":              "berth node ls -o wide\nberth node ls -l zone=a -L disk",
		"node status":          "berth node status n1",
		"node top":             "berth node top --sort memory",
		"top":                  "berth top\nberth top services --sort memory\nberth top tasks --containers --times 1",
		"node cordon":          "berth node cordon n1",
		"node uncordon":        "berth node uncordon n1",
		"node drain":           "berth node drain n1 --wait --deadline 30m",
		"node forget":          "berth node forget n1",
		"node reserve-ports":   "berth node reserve-ports n1 22,8000-8100",
		"node unreserve-ports": "berth node unreserve-ports n1 22\nberth node unreserve-ports n1 --all",
		"node taint":           "berth node taint n1 dedicated=gpu\nberth node taint n1 old:avoid maintenance:evict",
		"node untaint":         "berth node untaint n1 dedicated maintenance:evict",
		"node pool":            "berth node pool n1 gpu\nberth node pool n1 --none",
		"node dial": "berth node dial n1 10.0.0.5\nberth node dial n1 ssh://ops@edge7.example:2222\n" +
			"berth node dial n1 --off",
		"node domain":       "berth node domain n1 ci\nberth node domain n1 ci --force",
		"pool ls":           "berth pool ls",
		"profile ls":        "berth profile ls",
		"machine describe":  "berth machine describe\nberth machine describe --profile worker.yaml",
		"machine apply":     "berth machine apply --profile worker.yaml",
		"node drift":        "berth node drift\nberth node drift n1 n2",
		"node repair":       "berth node repair n1",
		"node upgrade":      "berth node upgrade --dry-run\nberth node upgrade n1 n2\nberth node upgrade --wave 20",
		"machine revert":    "berth machine revert",
		"machine supervise": "berth machine supervise",
		"node adopt": "berth --context fleet node adopt n1 --domain edge --dry-run\n" +
			"berth --context fleet node adopt n1",
		"node release": "berth --context fleet node release n1",
		"node add": "berth node add 10.0.0.5 --profile worker --dry-run\n" +
			"berth node add n1=root@10.0.0.5 n2=root@10.0.0.6 --profile worker@2 --pool edge\n" +
			"berth node add 10.0.0.7 --standalone --profile worker.yaml\n" +
			"berth node add -f machines.txt --user admin --ask-sudo-password --jump root@gate.example",
		"endpoint ls": "berth endpoint ls",
		"addresses": "berth addresses web-http\nberth addresses web-http prod/api-http --watch -o json\n" +
			"berth addresses web-http --file /etc/haproxy/web.cfg --template web.cfg.template " +
			"--exec 'systemctl reload haproxy'",
		"domain ls":     "berth domain ls",
		"domain status": "berth domain status ci",
	}
}

func serveExamples() map[string]string {
	return map[string]string{ //nolint:gosec // file names, no secrets
		"dev":         "berth dev --data-dir /tmp/berth",
		"standalone":  "berth standalone\nberth standalone --executor auto --label rack=4",
		"agent":       "berth agent --server https://10.0.0.1:7071 --join-token-file join-node",
		"server":      "berth server",
		"server init": "berth server init --name s1 --advertise 10.0.0.1",
		"server join": "berth server join --name s2 --server https://10.0.0.1:7071 " +
			"--token-file join-server --advertise 10.0.0.2",
		"server members":        "berth server members",
		"server promote":        "berth server promote s2",
		"server remove":         "berth server remove s2",
		"server recover-quorum": "berth server recover-quorum --data-dir /var/lib/berth --yes",
		"token create": "berth token create --role viewer --name ci\nberth token create --join " +
			"--role node --uses 20",
		"token ls":                  "berth token ls",
		"token revoke":              "berth token revoke t1",
		"operator debug":            "berth operator debug",
		"operator recover":          "berth operator recover --adopt",
		"operator silence override": "berth operator silence override --for 15m",
		"operator test-scheduler":   "berth operator test-scheduler -- examples/schedulers/spread.py --beat 1",
		"operator snapshot save":    "berth operator snapshot save berth.snapshot",
		"operator snapshot inspect": "berth operator snapshot inspect berth.snapshot",
		"operator snapshot restore": "berth operator snapshot restore berth.snapshot",
	}
}
