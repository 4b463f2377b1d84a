package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// foreignText puts a field of another system into an object without other faults.
func foreignText(place, text string) string {
	const definition = "kind: TaskDefinition\nname: web\nversion: 1\n"
	const container = definition + "containers: [{name: web, image: web:1}]\n"
	switch place {
	case "service":
		return "kind: Service\nname: web\ndefinition: web@1\ncount: 1\n" + text + "\n"
	case "definition":
		return container + text + "\n"
	case "container":
		return definition + "volumes: [{name: data}]\ncontainers:\n- name: web\n  image: web:1\n  " + text + "\n"
	case "templated":
		return "kind: Service\nname: web\ncount: 1\ntemplate:\n  containers: [{name: web, image: web:1}]\n  " + text + "\n"
	case "job":
		return "kind: Job\nname: web\nsteps: [{name: all, definition: web@1}]\n" + text + "\n"
	case "step":
		return "kind: Job\nname: web\nsteps:\n- name: all\n  definition: web@1\n  " + text + "\n"
	}
	return "kind: Cron\nname: web\nschedules: ['@daily']\njob: {steps: [{name: all, definition: web@1}]}\n" + text + "\n"
}

// TestForeignFields reads fields of Kubernetes, Docker Compose, Nomad and Slurm. Each fault says what to write instead,
// with the value that the user wrote, and is the only one.
func TestForeignFields(t *testing.T) {
	for _, test := range []struct{ place, text, want string }{
		{"service", `replicas: 3`, `unknown field "replicas": write count: 3`},
		{
			"service", `metadata: {name: web, labels: {app: web}}`,
			`unknown field "metadata": write name: web, labels: {app: web} at the top level of the ` +
				`document`,
		},
		{"service", `spec: {replicas: 3}`, `unknown field "spec": write its fields at the top level of the document`},
		{"service", `annotations: {team: a}`, `unknown field "annotations": write labels: {team: a}`},
		{"service", `namespace: prod`, `unknown field "namespace": write cluster: prod`},
		{
			"service", `selector: {matchLabels: {app: web}}`,
			`unknown field "selector": leave it out: a Service names its definition`,
		},
		{"templated", `spec: {}`, `template: unknown field "spec": write its fields in template itself`},
		{
			"service", `nodeSelector: {zone: a}`,
			`unknown field "nodeSelector": write constraints: [{attribute: label.zone, value: a}] in ` +
				`placement`,
		},
		{
			"service", `nodeName: n1`,
			`unknown field "nodeName": write constraints: [{attribute: node.name, value: n1}] in ` +
				`placement`,
		},
		{
			"service", `strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}`,
			`unknown field "strategy": write update: {max_surge: 1, min_healthy: 75%}`,
		},
		{
			"service", `strategy: spread`,
			`unknown field "strategy" at the top level of the service: it belongs in placement, as ` +
				`placement.strategy`,
		},
		{
			"service", `update: {maxUnavailable: 25%}`,
			`update: unknown field "maxUnavailable": write min_healthy: 75%`,
		},
		{
			"service", `update: {progressDeadlineSeconds: 600}`,
			`update: unknown field "progressDeadlineSeconds": write progress_deadline: 10m`,
		},
		{"service", `update: {max_parallel: 2}`, `update: unknown field "max_parallel": write parallelism: 2`},
		{"service", `update: {auto_revert: true}`, `update: unknown field "auto_revert": write auto_rollback: true`},
		{"service", `update: {canary: 1}`, `update: unknown field "canary": write canaries: 1`},
		{
			"service", `minReadySeconds: 5`,
			`unknown field "minReadySeconds": write min_healthy_time: 5s at the top level of a ` +
				`TaskDefinition`,
		},
		{
			"service", `revisionHistoryLimit: 3`,
			`unknown field "revisionHistoryLimit": leave it out: Berth keeps the newest 10 unused ` +
				`versions`,
		},
		{"service", `priorityClassName: high`, `unknown field "priorityClassName": write priority: NUMBER`},
		{
			"service", `topologySpreadConstraints: [{topologyKey: zone}]`,
			`unknown field "topologySpreadConstraints": write spread: [{attribute: label.KEY}] in ` +
				`placement`,
		},
		{"service", `deploy: {replicas: 2}`, `unknown field "deploy": write count: 2`},
		{"service", `type: system`, `unknown field "type": write mode: daemon`},
		{
			"service", `constraint: {attribute: "${meta.zone}", value: a}`,
			`unknown field "constraint": write constraints: [{attribute: label.zone, value: a}] in ` +
				`placement`,
		},
		{"service", `meta: {team: a}`, `unknown field "meta": write labels: {team: a}`},
		{
			"service", `group: {count: 1}`,
			`unknown field "group": write a TaskDefinition with containers, and a Service or a Job that ` +
				`names it`,
		},
		{
			"service", `datacenters: [dc1]`,
			`unknown field "datacenters": leave it out: write pool or constraints in placement to choose ` +
				`nodes`,
		},
		{
			"service", `image: web:1`,
			`unknown field "image" at the top level of the service: it belongs in a container, as ` +
				`template.containers[].image`,
		},
		{
			"service", `ports: [{name: http}]`,
			`unknown field "ports" at the top level of the service: it belongs in template, as ` +
				`template.ports`,
		},
		{
			"service", `scaling: {min: 1, max: 2, minReplicas: 1, targets: [{metric: cpu, target: 5}]}`,
			`scaling: unknown field "minReplicas": write min: 1`,
		},
		{"definition", `replicas: 3`, `unknown field "replicas": write count: 3 at the top level of a Service`},
		{"definition", `restartPolicy: Always`, `unknown field "restartPolicy": write restart: {mode: always}`},
		{
			"definition", `restart: unless-stopped`,
			`restart: want an object, found the text "unless-stopped": write {mode: always}`,
		},
		{
			"definition", `initContainers: [{name: a}]`,
			`unknown field "initContainers": write them first in containers, each with init: true`,
		},
		{"definition", `hostNetwork: true`, `unknown field "hostNetwork": write network: host`},
		{"definition", `network_mode: host`, `unknown field "network_mode": write network: host`},
		{
			"definition", `terminationGracePeriodSeconds: 90`,
			`unknown field "terminationGracePeriodSeconds": write grace: 1m30s`,
		},
		{"definition", `stop_grace_period: 30s`, `unknown field "stop_grace_period": write grace: 30s`},
		{"definition", `kill_timeout: 30s`, `unknown field "kill_timeout": write grace: 30s`},
		{
			"definition", `livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 5, failureThreshold: 3}`,
			`unknown field "livenessProbe": write checks: [{name: liveness, type: http, port: http, ` +
				`path: /healthz, interval: 5s, fail_after: 3, meaning: liveness}]`,
		},
		{
			"definition", `healthcheck: {test: [CMD, wget, -q, "http://localhost"], interval: 5s, retries: 3}`,
			`unknown field "healthcheck": write checks: [{name: up, type: exec, command: [wget, -q, ` +
				`http://localhost], interval: 5s, fail_after: 3}]`,
		},
		{"definition", `image: web:1`, `unknown field "image": write containers: [{name: main, image: web:1}]`},
		{
			"definition", `ports: ["8080:80"]`,
			`ports[0]: want an object, found the text "8080:80": write {name: http, port: 8080, to: 80}`,
		},
		{
			"definition", `ports: [{name: http, containerPort: 80}]`,
			`ports[0]: unknown field "containerPort": write port: 80, or to: in a bridge network`,
		},
		{"definition", `ports: [{name: http, hostPort: 80}]`, `ports[0]: unknown field "hostPort": write port: 80`},
		{"definition", `ports: [{name: http, static: 80}]`, `ports[0]: unknown field "static": write port: 80`},
		{
			"definition", `volumes: [{name: data, hostPath: {path: /srv}}]`,
			`volumes[0]: unknown field "hostPath": write host: /srv`,
		},
		{
			"definition", `volumes: [{name: data, emptyDir: {}}]`,
			`volumes[0]: unknown field "emptyDir": leave it out: the name makes the volume; for memory ` +
				`write tmpfs in a container`,
		},
		{
			"definition", `volumes: [{name: data, persistentVolumeClaim: {claimName: d}}]`,
			`volumes[0]: unknown field "persistentVolumeClaim": leave it out: the name makes the volume ` +
				`on the node`,
		},
		{
			"definition", `volumes: [{name: data, secret: {secretName: db}}]`,
			`volumes[0]: unknown field "secret": write secrets: [{secret: db, file: PATH}] in a container`,
		},
		{"definition", `volumes: {data: {}}`, `volumes: want a list, found an object: write [{name: data, …}]`},
		{
			"definition", `checks: [{name: a, type: exec, command: [a], periodSeconds: 10}]`,
			`checks[0]: unknown field "periodSeconds": write interval: 10s`,
		},
		{"definition", `ephemeral_disk: {size: 300}`, `unknown field "ephemeral_disk": write disk: 300MiB`},
		{"definition", `restart: {attempts: 2}`, `restart: unknown field "attempts": write limit: 2`},
		{
			"container", `environment: {A: b, N: 1}`,
			`containers[0]: unknown field "environment": write env: {A: b, "N": "1"}`,
		},
		{
			"container", `environment: [A=b, C=d]`,
			`containers[0]: unknown field "environment": write env: {A: b, C: d}`,
		},
		{
			"container", `env: [{name: A, value: b}]`,
			`containers[0].env: want an object of keys and values, found a list: write {A: b}`,
		},
		{"container", `env_file: .env`, `containers[0]: unknown field "env_file": write env: {NAME: VALUE}`},
		{
			"container", `envFrom: [{configMapRef: {name: a}}]`,
			`containers[0]: unknown field "envFrom": write env: {NAME: VALUE}`,
		},
		{
			"container", `entrypoint: /run.sh -v`,
			`containers[0]: unknown field "entrypoint": write command: [sh, -c, "/run.sh -v"]`,
		},
		{
			"container", `entrypoint: [/run.sh, -v]`,
			`containers[0]: unknown field "entrypoint": write command: [/run.sh, -v]`,
		},
		{
			"container", `command: echo hi`,
			`containers[0].command: want a list, found the text "echo hi": write [sh, -c, "echo hi"]`,
		},
		{"container", `args: -v`, `containers[0].args: want a list, found the text "-v": write [-v]`},
		{
			"container", `depends_on: [db, cache]`,
			`containers[0]: unknown field "depends_on": write services: [{service: db}, {service: ` +
				`cache}]; for a container of the same task write after: [NAME]`,
		},
		{
			"container", `readinessProbe: {tcpSocket: {port: 8080}, timeoutSeconds: 2}`,
			`containers[0]: unknown field "readinessProbe": write checks: [{name: readiness, type: tcp, ` +
				`port: NAME, timeout: 2s}] at the top level of the definition`,
		},
		{
			"container", `startupProbe: {exec: {command: [/check]}, initialDelaySeconds: 5}`,
			`containers[0]: unknown field "startupProbe": write checks: [{name: startup, type: exec, ` +
				`command: [/check], initial_delay: 5s, meaning: startup}] at the top level of the definition`,
		},
		{
			"container", `livenessProbe: {grpc: {port: 5}}`,
			`containers[0]: unknown field "livenessProbe": write checks: [{name: liveness, type: grpc, ` +
				`port: NAME, meaning: liveness}] at the top level of the definition`,
		},
		{
			"container", `imagePullPolicy: IfNotPresent`,
			`containers[0]: unknown field "imagePullPolicy": write pull: missing`,
		},
		{
			"container", `imagePullSecrets: [{name: login}]`,
			`containers[0]: unknown field "imagePullSecrets": write pull_secret: login`,
		},
		{"container", `workingDir: /srv`, `containers[0]: unknown field "workingDir": write dir: /srv`},
		{"container", `working_dir: /srv`, `containers[0]: unknown field "working_dir": write dir: /srv`},
		{"container", `container_name: web`, `containers[0]: unknown field "container_name": write name: web`},
		{
			"container", `volumeMounts: [{name: data, mountPath: /data}]`,
			`containers[0]: unknown field "volumeMounts": write mounts: [{volume: data, path: /data}]`,
		},
		{
			"container", `mounts: [{name: data, mountPath: /data}]`,
			`containers[0].mounts[0]: unknown field "name": write volume: data` + "\n" +
				`containers[0].mounts[0]: unknown field "mountPath": write path: /data`,
		},
		{
			"container", `mounts: ["data:/data:ro"]`,
			`containers[0].mounts[0]: want an object, found the text "data:/data:ro": write {volume: ` +
				`data, path: /data, read_only: true}`,
		},
		{
			"container", `volumes: ["data:/data", "./conf:/etc/conf:ro"]`,
			`containers[0]: unknown field "volumes": write mounts: [{volume: data, path: /data}, ` +
				`{volume: NAME, path: /etc/conf, read_only: true}]`,
		},
		{
			"container", `ports: ["8080:80"]`,
			`containers[0]: unknown field "ports": write ports: [{name: http, port: 8080, to: 80}] at ` +
				`the top level of the definition`,
		},
		{
			"container", `ports: [{name: http}]`,
			`containers[0]: unknown field "ports" in a container: it belongs at the top level of the ` +
				`definition`,
		},
		{
			"container", `restart: always`,
			`containers[0]: unknown field "restart": write restart: {mode: always} at the top level of ` +
				`the definition`,
		},
		{
			"container", `cap_add: [NET_ADMIN]`,
			`containers[0]: unknown field "cap_add": write capabilities: [NET_ADMIN]`,
		},
		{
			"container", `cap_drop: [ALL]`,
			`containers[0]: unknown field "cap_drop": leave it out: all capabilities but those of ` +
				`capabilities are dropped`,
		},
		{
			"container", `privileged: true`,
			`containers[0]: unknown field "privileged": leave it out: write capabilities, and devices in ` +
				`resources`,
		},
		{"container", `mem_limit: 64m`, `containers[0]: unknown field "mem_limit": write memory: 64MiB in resources`},
		{"container", `cpus: 0.5`, `containers[0]: unknown field "cpus": write cpu: 0.5 in resources`},
		{
			"container", `memory: 64MiB`,
			`containers[0]: unknown field "memory" in a container: it belongs in resources, as ` +
				`containers[].resources.memory`,
		},
		{
			"container", `resources: {requests: {cpu: 100m, memory: 64Mi}}`,
			`containers[0].resources: unknown field "requests": write cpu: 100m, memory: 64Mi`,
		},
		{
			"container", `resources: {limits: {cpu: 1, memory: 128Mi, nvidia.com/gpu: 1}}`,
			`containers[0].resources: unknown field "limits": write cpu_limit: 1, memory: 128Mi, ` +
				`devices: [{type: gpu, count: 1}]`,
		},
		{
			"container", `securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true}`,
			`containers[0]: unknown field "securityContext": write user: "1000", read_only_root: true`,
		},
		{"container", `read_only: true`, `containers[0]: unknown field "read_only": write read_only_root: true`},
		{"container", `tmpfs: /tmp`, `containers[0].tmpfs: want a list, found the text "/tmp": write [{path: /tmp}]`},
		{
			"container", `build: .`,
			`containers[0]: unknown field "build": write image: NAME:TAG of an image that is built ` +
				`elsewhere`,
		},
		{
			"container", `logging: {driver: json}`,
			"containers[0]: unknown field \"logging\": leave it out: `berth logs` reads the output",
		},
		{
			"container", `secrets: [db]`,
			`containers[0].secrets[0]: want an object, found the text "db": write {secret: db, file: ` +
				`/run/secrets/db}`,
		},
		{
			"container", `services: [db]`,
			`containers[0].services[0]: want an object, found the text "db": write {service: db}`,
		},
		{
			"container", `driver: docker`,
			`containers[0]: unknown field "driver": leave it out: containers with an image run in ` +
				`containerd, others as processes`,
		},
		{
			"container", `config: {image: a}`,
			`containers[0]: unknown field "config": write image, command and args in the container`,
		},
		{
			"container", `template: {data: a}`,
			`containers[0]: unknown field "template" in a container: it belongs in a file, as ` +
				`containers[].files[].template`,
		},
		{"container", `user: 1000`, `containers[0].user: want text, found the number 1000: put it in quotes, "1000"`},
		{"step", `backoffLimit: 3`, `steps[0]: unknown field "backoffLimit": write retries: 3`},
		{"step", `completions: 4`, `steps[0]: unknown field "completions": write count: 4`},
		{
			"step", `activeDeadlineSeconds: 3600`,
			`steps[0]: unknown field "activeDeadlineSeconds": write time_limit: 1h`,
		},
		{
			"step", `array: 0-9`,
			`steps[0]: unknown field "array": write count: 10, where BERTH_INDEX counts from 0`,
		},
		{
			"step", `array: 1-10%3`,
			`steps[0]: unknown field "array": write count: 10 and parallelism: 3, where BERTH_INDEX counts from 0`,
		},
		{
			"step", `array: "0-99:10"`,
			`steps[0]: unknown field "array": write count: 10, where BERTH_INDEX counts from 0`,
		},
		{
			"step", `array: "1,3,5-7"`,
			`steps[0]: unknown field "array": write count: 5, where BERTH_INDEX counts from 0`,
		},
		{
			"step", `array: odd`,
			`steps[0]: unknown field "array": write count: …, where BERTH_INDEX counts from 0`,
		},
		{
			"step", `time_limit: 30`,
			`steps[0].time_limit: "30" is not a duration: write 30s for seconds, or 30m for minutes`,
		},
		{
			"step", `time_limit: 1-00:00:00`,
			`steps[0].time_limit: "1-00:00:00" is not a duration: write 24h`,
		},
		{
			"step", `time_limit: "00:10:00"`,
			`steps[0].time_limit: "00:10:00" is not a duration: write 10m`,
		},
		{"step", `time: "01:30:00"`, `steps[0]: unknown field "time": write time_limit: 1h30m`},
		{
			"step", `cpus-per-task: 4`,
			`steps[0]: unknown field "cpus-per-task": write cpu: 4 in resources of the template`,
		},
		{"step", `mem: 4G`, `steps[0]: unknown field "mem": write memory: 4GiB in resources of the template`},
		{"step", `partition: gpu`, `steps[0]: unknown field "partition": write pool: gpu in placement`},
		{
			"step", `gres: gpu:a100:2`,
			`steps[0]: unknown field "gres": write devices: [{type: gpu, count: 2}] in resources of ` +
				`the template`,
		},
		{"job", `ntasks: 4`, `unknown field "ntasks": write count: 4 in a step`},
		{"job", `job-name: x`, `unknown field "job-name": write name: x`},
		{
			"job", `ttlSecondsAfterFinished: 60`,
			`unknown field "ttlSecondsAfterFinished": write keep: 1m`,
		},
		{"job", `output: x.log`, "unknown field \"output\": leave it out: `berth logs` reads the output"},
		{"cron", `schedule: "5 3 * * *"`, `unknown field "schedule": write schedules: ["5 3 * * *"]`},
		{"cron", `timeZone: Europe/Paris`, `unknown field "timeZone": write zone: Europe/Paris`},
		{"cron", `concurrencyPolicy: Forbid`, `unknown field "concurrencyPolicy": write concurrency: forbid`},
		{
			"cron", `successfulJobsHistoryLimit: 3`,
			`unknown field "successfulJobsHistoryLimit": write keep_succeeded: 3`,
		},
		{"cron", `failedJobsHistoryLimit: 1`, `unknown field "failedJobsHistoryLimit": write keep_failed: 1`},
		{"cron", `startingDeadlineSeconds: 200`, `unknown field "startingDeadlineSeconds": write within: 3m20s`},
		{"cron", `suspend: true`, `unknown field "suspend": did you mean "suspended"?`},
		{"cron", `jobTemplate: {spec: {}}`, `unknown field "jobTemplate": write job: {steps: […]}`},
		{"cron", `prohibit_overlap: true`, `unknown field "prohibit_overlap": write concurrency: forbid`},
		{"cron", `periodic: {crons: ["5 3 * * *"]}`, `unknown field "periodic": write schedules: ["5 3 * * *"]`},
	} {
		t.Run(test.place+"/"+test.text, func(t *testing.T) {
			_, err := Parse("m", []byte(foreignText(test.place, test.text)))
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for i, line := range lines {
				_, lines[i], _ = strings.Cut(line, ": ")
			}
			if got := strings.Join(lines, "\n"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestForeignDocuments reads whole files of other systems. Each document has one fault, which names its counterparts.
func TestForeignDocuments(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{
			"Kubernetes", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3, x: 1}\n" +
				"---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n---\n" +
				"apiVersion: batch/v1\nkind: Job\nspec: {}\n---\nkind: ConfigMap\ndata: {}\n",
			[]string{
				"m:1:1: this is a Deployment of Kubernetes: write a Service with a template, with name: web " +
					"and count: 3 (docs/guide/from-kubernetes.md)",
				"m:6:1: this is a Service of Kubernetes: write ports in the template of a Service, whose name " +
					"finds the tasks (docs/guide/networks.md), with name: web (docs/guide/from-kubernetes.md)",
				"m:11:1: this is a Job of Kubernetes: write a Job with a template in its step (docs/guide/from-kubernetes.md)",
				`m:15:7: kind: unknown kind "ConfigMap": write files of a container ` +
					"(docs/guide/from-kubernetes.md)",
			},
		},
		{
			"Docker Compose", "services:\n  web: {image: a}\n  db: {image: b}\nvolumes: {data: {}}\n",
			[]string{"m:1:1: this is a file of Docker Compose: write a Service with a template for each of its services: " +
				"web, db (docs/guide/from-compose.md)"},
		},
		{"Nomad", "# web\njob \"web\" {\n  group \"web\" { count = 3 }\n}\n", []string{"m:2:1: " + nomadAdvice}},
		{"Nomad in JSON", `{"Job": {"ID": "web"}}`, []string{"m:1:1: " + nomadAdvice}},
		{
			"Slurm", "#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH -n 4\n#SBATCH --time=01:00:00\n#SBATCH --mail-user=a\n" +
				"#SBATCH -n4 -c 2 --partition gpu # together\n" +
				"#SBATCH -a 0-99:10%2\n# $SLURM_PROCID\nsrun hostname \"${SLURM_ARRAY_TASK_ID}\" $SLURM_JOB_ID\n",
			[]string{
				"m:1:1: this is a batch script of Slurm: write a Job with a template whose command runs the script " +
					"(docs/guide/from-slurm.md)",
				"m:2:1: option --job-name of sbatch: write name: train at the top level of the job",
				"m:3:1: option --ntasks of sbatch: write count: 4 in a step",
				"m:4:1: option --time of sbatch: write time_limit: 1h in a step",
				"m:5:1: option --mail-user of sbatch: leave it out: Berth has nothing like it, or does it by itself",
				"m:6:1: option --ntasks of sbatch: write count: 4 in a step",
				"m:6:1: option --cpus-per-task of sbatch: write cpu: 2 in resources of the template",
				"m:6:1: option --partition of sbatch: write pool: gpu in placement",
				"m:7:1: option --array of sbatch: write count: 10 and parallelism: 2 in a step, where BERTH_INDEX " +
					"counts from 0",
				"m:9:1: variable SLURM_ARRAY_TASK_ID of Slurm: write BERTH_INDEX, which counts from 0",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("m", []byte(test.text))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
