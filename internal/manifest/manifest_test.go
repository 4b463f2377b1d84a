package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// whole is a manifest that uses every form a value can be written in.
const whole = `# A web service.
kind: Cluster
name: prod
labels: {tier: front, "a/b": "1"}
---
kind: TaskDefinition
name: web
version: 2
containers:
- name: app
  image: registry.example/app:2
  args: [-listen, ":$(PORT_HTTP)"]
  env: &env
    MODE: fast
    GREETING: |
      hello
      world
  resources:
    cpu: 500m
    memory: 256MiB
- name: side
  image: registry.example/side:1
  env:
    <<: *env
    MODE: slow
  resources: {cpu: 0.25, memory: 8388608}
ports:
- name: http
checks:
- name: up
  type: http
  port: http
  interval: 1m30s
grace: 10s
...
---
kind: Service
cluster: prod
name: web
definition: web@2
count: 3
---
kind: Job
name: work
steps:
- name: all
  definition: work@1
  count: 8
  time_limit: 0
---
kind: Cron
name: nightly
schedules: ["5 3 * * *"]
zone: Europe/Paris
keep_failed: 0
job:
  steps:
  - {name: all, definition: work@1}
---
kind: Service
name: auto
definition: web@2
update: {max_surge: 50%, min_healthy: 1, auto_rollback: false}
scaling:
  min: 1
  max: 4
  targets: [{metric: cpu, target: 62.5}]
  down: {window: 0s}
`

func TestParseCompleteManifest(t *testing.T) {
	objects, err := Parse("web.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := []Object{
		{Position{"web.yaml", 2, 1}, cluster.KindCluster, &cluster.Cluster{
			Name: "prod", Labels: cluster.Labels{"tier": "front", "a/b": "1"},
		}, nil},
		{Position{"web.yaml", 6, 1}, cluster.KindTaskDefinition, &cluster.TaskDefinition{
			Name: "web", Version: 2,
			Containers: []cluster.Container{
				{
					Name: "app", Image: "registry.example/app:2", Args: []string{"-listen", ":$(PORT_HTTP)"},
					Env:       map[string]string{"MODE": "fast", "GREETING": "hello\nworld\n"},
					Resources: cluster.Resources{CPU: 500, Memory: 256 * cluster.MiB},
				},
				{
					Name: "side", Image: "registry.example/side:1",
					Env:       map[string]string{"MODE": "slow", "GREETING": "hello\nworld\n"},
					Resources: cluster.Resources{CPU: 250, Memory: 8 * cluster.MiB},
				},
			},
			Ports: []cluster.Port{{Name: "http"}},
			Checks: []cluster.Check{{
				Name: "up", Type: cluster.CheckHTTP, Port: "http",
				Interval: cluster.Duration(90 * time.Second),
			}},
			Grace: cluster.Duration(10 * time.Second),
		}, nil},
		{Position{"web.yaml", 37, 1}, cluster.KindService, &cluster.Service{
			Cluster: "prod", Name: "web", Definition: cluster.Ref{Name: "web", Version: 2}, Count: 3,
		}, nil},
		{Position{"web.yaml", 43, 1}, cluster.KindJob, &cluster.Job{
			Name: "work", Steps: []cluster.Step{
				{Name: "all", Definition: cluster.Ref{Name: "work", Version: 1}, Count: 8},
			},
		}, nil},
		{Position{"web.yaml", 51, 1}, cluster.KindCron, &cluster.Cron{
			Name: "nightly", Schedules: []string{"5 3 * * *"}, Zone: "Europe/Paris", KeepFailed: new(int),
			Job: cluster.CronJob{Steps: []cluster.Step{
				{Name: "all", Definition: cluster.Ref{Name: "work", Version: 1}},
			}},
		}, nil},
		{Position{"web.yaml", 60, 1}, cluster.KindService, &cluster.Service{
			Name: "auto", Definition: cluster.Ref{Name: "web", Version: 2},
			Update: cluster.Update{
				MaxSurge: &cluster.Portion{N: 50, Percent: true}, MinHealthy: &cluster.Portion{N: 1},
				AutoRollback: new(bool),
			},
			Scaling: &cluster.Scaling{
				Min: 1, Max: 4, Targets: []cluster.ScaleTarget{{Metric: cluster.ScaleCPU, Target: 62.5}},
				Down: cluster.ScalePace{Window: new(cluster.Duration)},
			},
		}, nil},
	}
	if diff := cmp.Diff(want, objects, cmpopts.IgnoreUnexported(Object{})); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if got, want := objects[1].At("containers[1].resources.cpu"), (Position{"web.yaml", 26, 20}); got != want {
		t.Errorf("place of the second container's CPU: got %v, want %v", got, want)
	}
	if got, want := objects[1].At("containers[0].user"), (Position{"web.yaml", 10, 3}); got != want {
		t.Errorf("place of a field that is not written: got %v, want its container's %v", got, want)
	}
}

func TestJSONIsRead(t *testing.T) {
	text := "{\n\t\"kind\": \"Service\",\n\t\"name\": \"web\", \"definition\": \"web@1\",\n\t\"count\": 2, " +
		"\"labels\": {\"é\\/\": \"\\ud83d\\ude00\"}, \"prioritty\": 1\n}\n{\"kind\":\"Cluster\",\"name\":\"c\"}"
	objects, err := Parse("s.json", []byte(text))
	want := "s.json:4:49: prioritty: unknown field \"prioritty\": did you mean \"priority\"?"
	if err == nil || !strings.Contains(err.Error(), strings.Replace(want, "prioritty: ", "", 1)) {
		t.Errorf("error: got %v, want %q in it", err, want)
	}
	if len(objects) != 2 {
		t.Fatalf("got %d objects, want 2", len(objects))
	}
	if got := objects[0].Value.(*cluster.Service).Labels["é/"]; got != "😀" {
		t.Errorf("label: got %q, want 😀", got)
	}
}

func TestFaults(t *testing.T) {
	service := "kind: Service\nname: web\ndefinition: web@1\ncount: 1\n"
	tests := []struct {
		name, text string
		want       []string // every line, in order; "…" at the end accepts more lines
	}{
		{
			"unknown field", service + "prioritty: 3\n",
			[]string{`m:5:1: unknown field "prioritty": did you mean "priority"?`},
		},
		{
			"field of an element", "kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n- name: app\n " +
				" imgae: a:1\n",
			[]string{
				`m:6:3: containers[0]: unknown field "imgae": did you mean "image"?`,
			},
		},
		{
			"case and joints", service + "onDisconnect: keep\n",
			[]string{`m:5:1: unknown field "onDisconnect": did you mean "on_disconnect"?`},
		},
		{
			"nothing near", service + "zzzzzz: 3\n",
			[]string{`m:5:1: unknown field "zzzzzz": 'berth fields service' lists the fields`},
		},
		{
			"in another place", "kind: Job\nname: j\nsteps: [{name: s, definition: d@1}]\nplacement: {}\nimage: a:1\n",
			[]string{
				`m:4:1: unknown field "placement" at the top level of the job: it belongs in a step, as steps[].placement`,
				`m:5:1: unknown field "image" at the top level of the job: it belongs in a container, as ` +
					`steps[].template.containers[].image`,
			},
		},
		{
			"several together", "kind: Service\nname: web\ndefinition: Web\ncount: three\nlabels: [a]\nstopped: yes\n",
			[]string{
				`m:3:13: definition: "Web" is not a reference to a task definition: want name@version`,
				`m:4:8: count: want a whole number, found the text "three"`,
				`m:5:9: labels: want an object of keys and values, found a list`,
				`m:6:10: stopped: want true or false, found the text "yes": write true`,
			},
		},
		{
			"several documents", "kind: Servise\nname: web\ndefinition: web@1\ncount: -1\n---\nname: web\n---\n- a\n---\nkind: Job\nname: [\n---\nkind: 3\n",
			[]string{
				`m:1:7: kind: unknown kind "Servise": did you mean "Service"?`,
				`m:4:8: count: is -1, want a number from 0 to 100000`,
				`m:6:1: kind: is missing: want one of Domain, Cluster, Pool, Profile, TaskDefinition, Service, Job, Cron, Endpoint`,
				`m:8:1: a document must be an object with a kind, found a list`,
				`m:11:7: not YAML: …`,
				`m:13:7: kind: want one of Domain, Cluster, Pool, Profile, TaskDefinition, Service, Job, Cron, Endpoint, found the number 3`,
			},
		},
		{"number for text", "kind: Cluster\nname: c\nlabels: {port: 8080}\n", []string{
			`m:3:16: labels["port"]: want text, found the number 8080: put it in quotes, "8080"`,
		}},
		{"quantities", "kind: TaskDefinition\nname: web\nversion: 1\ngrace: 10\ndisk: 3 " +
			"apples\ncontainers:\n- name: app\n  image: a\n  resources:\n    cpu: lots\n    memory: [1]\n", []string{
			`m:4:8: grace: "10" is not a duration: write 10s for seconds, or 10m for minutes`,
			`m:5:7: disk: "3 apples" is not a size: want bytes, or a number with KiB, MiB, GiB (binary) or K, M, G (decimal)`,
			`m:10:10: containers[0].resources.cpu: "lots" is not an amount of CPU: want "500m" or "0.5"`,
			`m:11:13: containers[0].resources.memory: want text or a number, found a list`,
		}},
		{"missing", "kind: Service\nname: web\n", []string{
			`m:1:1: count: is missing: write count: 1`,
			`m:1:1: definition: is missing: write definition: NAME@VERSION, or template: with the containers`,
		}},
		{
			"policies", service + "update:\n  max_surge: many\n  min_healthy: -1\n  canaries: 1.5\n  " +
				"parallelism: [1]\n  autorollback: yes\n" +
				"scaling:\n  min: 1\n  targets:\n  - {metric: cpu, target: high}\n  - {metric: cpu, target: .inf}\n",
			[]string{
				`m:6:14: update.max_surge: "many" is not a number of tasks: want a number such as 2, or a share such as "25%"`,
				`m:7:16: update.min_healthy: "-1" is not a number of tasks: …`,
				`m:8:13: update.canaries: "1.5" is not a number of tasks: …`,
				`m:9:16: update.parallelism: want text or a number, found a list`,
				`m:10:3: update: unknown field "autorollback": did you mean "auto_rollback"?`,
				`m:12:3: scaling.max: is missing: write max: 1`,
				`m:14:27: scaling.targets[0].target: want a number, found the text "high"`,
				`m:15:27: scaling.targets[1].target: want a finite number, found the number .inf`,
			},
		},
		{"placement", service + "placement:\n  afinities: []\n  node_pool: gpu\n  spread:\n  - {attribut: " +
			"label.aa, max_skew: 1.5}\n  - {attribute: label.a, targets: [{value: 1, percent: 50%}]}\n" +
			"  relations:\n  - {label: {a: b}}\n  - labels: {}\n  distinct: [node.name]\n  tolerations: " +
			"[{operator: Exists}]\n", []string{
			`m:6:3: placement: unknown field "afinities": did you mean "affinities"?`,
			`m:7:3: placement: unknown field "node_pool": 'berth fields service.placement' lists the fields`,
			`m:9:6: placement.spread[0]: unknown field "attribut": did you mean "attribute"?`,
			`m:9:36: placement.spread[0].max_skew: want a whole number, found the number 1.5`,
			`m:10:44: placement.spread[1].targets[0].value: want text, found the number 1: put it in quotes, "1"`,
			`m:10:56: placement.spread[1].targets[0].percent: want a whole number, found the text "50%"`,
			`m:12:6: placement.relations[0]: unknown field "label": did you mean "labels"?`,
			`m:13:13: placement.relations[1].labels: is empty: want the labels of the other services or jobs`,
			`m:14:14: placement.distinct[0]: want an object, found the text "node.name": write {attribute: node.name}`,
			`m:15:18: placement.tolerations[0]: unknown field "operator": want one of effect, for, key, value`,
		}},
		{
			"placement without sense",
			service + "placement:\n  relations:\n  - labels: {}\n  - labels: {a: b}\n    weight: 5\n    " +
				"required: true\n  tolerations:\n  - value: x\n",
			[]string{
				`m:7:13: placement.relations[0].labels: is empty: …`,
				`m:9:13: placement.relations[1].weight: is 5, but a required relation has no weight: …`,
				`m:12:12: placement.tolerations[0].value: is "x" without a key: …`,
			},
		},
		{"devices", "kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n- name: app\n  image: a\n  " +
			"resources:\n    devices:\n    - {kind: gpu, modells: [A100]}\n    - {share: 50%}\n    - " +
			"{share: 200, count: 2}\n", []string{
			`m:9:8: containers[0].resources.devices[0]: unknown field "kind": …`,
			`m:9:19: containers[0].resources.devices[0]: unknown field "modells": did you mean "models"?`,
			`m:10:15: containers[0].resources.devices[1].share: want a whole number, found the text "50%"`,
			`m:11:15: containers[0].resources.devices[2].share: is a part of one device, and count is 2: …`,
		}},
		{
			"no count where something else gives it",
			"kind: Service\nname: web\ndefinition: web@1\nmode: daemon\nx: 1\n---\n" +
				"kind: Service\nname: api\ndefinition: web@1\nscaling:\n",
			[]string{`m:5:1: unknown field "x": 'berth fields service' lists the fields`, `m:7:1: count: is missing: write count: 1`},
		},
		{"cron", "kind: Cron\nname: c\nschedule: '* * * * *'\njob:\n  steps: [{nam: a}]\n", []string{
			`m:3:1: unknown field "schedule": write schedules: ["* * * * *"]`,
			`m:5:11: job.steps[0].definition: is missing: write definition: NAME@VERSION, or template: …`,
			`m:5:12: job.steps[0]: unknown field "nam": did you mean "name"?`,
		}},
		{"schedules", "kind: Cron\nname: c\nschedules: ['61 * * * *', '@daily']\njob: {steps: [{name: a, " +
			"definition: w@1}]}\n---\n" +
			"kind: Cron\nname: d\nschedules: ['@daily', '@hourly']\nzone: Europe/Pariss\njob: {steps: " +
			"[{name: a, definition: w@1}]}\n---\n" +
			service + "scaling: {min: 1, max: 2, schedules: [{cron: often, min: 1}]}\n", []string{
			`m:3:13: schedules[0]: …`, `m:9:7: zone: …`, `m:16:46: scaling.schedules[0].cron: …`,
		}},
		{"key twice", service + "count: 2\n", []string{`m:5:1: "count" is repeated: the first is in line 4`}},
		{"object twice", service + "---\n" + service + "---\ncluster: default\n" + service, []string{
			`m:6:1: Service web is defined twice: the first is at m:1:1`,
			`m:11:1: Service web is defined twice: the first is at m:1:1`,
		}},
		{
			"not UTF-8", "kind: Cluster\nname: \"é\xff\"\n",
			[]string{`m:2:9: byte 0xff is not UTF-8: a manifest is UTF-8 text`},
		},
		{
			"control character", "kind: Cluster\nname: a\x00b\n",
			[]string{`m:2:8: control character 0x00: a manifest is text`},
		},
		{
			"tab", "kind: Cluster\nlabels:\n\ta: b\n",
			[]string{`m:3:1: a tab indents the line: indent YAML with spaces`},
		},
		{"truncated list", "kind: Job\nname: j\nsteps: [{name: a", []string{`m:3:…`}},
		{
			"truncated text", "kind: Job\nname: \"j\nsteps: x\n",
			[]string{`m:2:7: not YAML: could not find end character of double-quoted text: it ends too early`},
		},
		{
			"unknown anchor", "kind: Cluster\nname: *who\n",
			[]string{`m:2:7: *who: no anchor &who comes before it in the document`},
		},
		{
			"anchor in itself", "kind: Cluster\nname: c\nlabels: &l {a: *l}\n",
			[]string{`m:3:16: *l is inside the value that it refers to`},
		},
		{
			"anchor of another document", "kind: Cluster\nname: &n c\n---\nkind: Cluster\nname: *n\n",
			[]string{`m:5:7: *n: no anchor &n comes before it in the document`},
		},
		{
			"tag", "kind: Cluster\nname: !!binary aGVsbG8=\n",
			[]string{`m:2:7: the tag !!binary is not supported; to make a value text, quote it`},
		},
		{"merge of text", service + "<<: x\n", []string{`m:5:5: "<<" merges objects, found the text "x"`}},
		{
			"huge number", "kind: Service\nname: web\ndefinition: web@1\ncount: 99999999999999999999\n",
			[]string{`m:4:8: count: …`},
		},
		{
			"nothing in a list", "kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n-\n",
			[]string{`m:5:3: containers[0]: want a value, found nothing: write one, or remove it from the list`},
		},
		{
			"indentation", "kind: Service\n name: web\n",
			[]string{`m:1:7: not YAML: mapping value is not allowed in this context: check the indentation, and quote text that contains ": "`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("m", []byte(test.text))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, matched(err, test.want)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostile reads texts that are made to cost time or memory. Each is refused, or read, within a short time.
func TestHostile(t *testing.T) {
	laughs := "kind: Cluster\nname: c\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i, c := range "123456789" {
		laughs += "a" + string(c) + ": &a" + string(c) + " [" + strings.Repeat("*a"+string("0123456789"[i])+",", 10) +
			"]\n"
	}
	lists := "kind: TaskDefinition\nname: c\nversion: 1\ncontainers:\n- &c {name: a, args: &l [" +
		strings.Repeat("x,", 2000) + "]}\n" + strings.Repeat("- *c\n", 1000)
	merges := "kind: Cluster\nname: c\nl0: &l0 {k: v}\n"
	for i := range 20 {
		a, b := string(rune('a'+i)), string(rune('b'+i))
		if i == 0 {
			a = "l0"
		}
		merges += "x" + b + ": &" + b + " {<<: [*" + a + ", *" + a + "]}\n"
	}
	tests := []struct{ name, text, want string }{
		{"billion laughs", laughs, "unknown field"},
		{"laughs in a field", lists, "more than 300000 values after its aliases are expanded"},
		{"merges of merges", merges, "unknown field"},
		{"deep flow", "kind: " + strings.Repeat("[", 20_000), "more than 32 levels deep"},
		{"deep objects", "kind: " + strings.Repeat("{a: ", 9_000), "more than 32 levels deep"},
		{"deep dashes", strings.Repeat("- ", 10_000), "more than 32 levels deep"},
		{"deep questions", strings.Repeat("? ", 10_000), "more than 32 levels deep"},
		{"deep blocks", deepBlocks(200), "more than 32 levels deep"},
		{"deep JSON", `{"kind":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "more than 32 levels deep"},
		{"huge file", strings.Repeat("# hello\n", MaxFile/8+1), "larger than 4 MiB"},
		{"huge document", "a: " + strings.Repeat("x", MaxDocument), "larger than 3 MiB"},
		{"many words", "a: [" + strings.Repeat("1,", 300_000) + "1]", "more than 500000 tokens"},
		{"many documents", strings.Repeat("---\n", 20_000), "more than 10000 documents"},
		{"many keys", manyKeys(9_000), "m:2001:11: an object has more than 2000 fields"},
		{
			"many words of many documents", strings.Repeat("---\na: ["+strings.Repeat("1,", 200_000)+"1]\n", 3),
			"the file has more than 1000000 tokens",
		},
		{"many documents of many keys", strings.Repeat("---\n"+manyKeys(1_990), 60), "kind: is missing"},
		{"only dashes", strings.Repeat("-\n", 29_000), "m:20001:1: a list has more than 20000 entries"},
		{"many JSON values", `{"kind":[` + strings.Repeat("1,", 400_000) + "1]}", "more than 300000 values"},
		{"many faults", "kind: Cluster\nname: c\n" + manyKeys(1900), "and 1800 more"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			watch := testkit.NewStopwatch()
			_, err := Parse("m", []byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: got %.300v, want %q in it", err, test.want)
			}
			if took := watch.Elapsed(); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func deepBlocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("k" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String() + ": v\n")
	}
	return b.String()
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", "kind: Cluster\nname: b\n")
	write("a.yml", "kind: Cluster\nname: a\n")
	write("c.json", `{"kind": "Cluster", "name": "c"}`)
	write("README.md", "not a manifest")

	objects, err := Read(strings.NewReader("kind: Cluster\nname: in\n"), dir, "-")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range objects {
		names = append(names, o.Name())
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "in"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}

	_, err = Read(strings.NewReader("kind: Cluster\nname: a\n"), filepath.Join(dir, "a.yml"), "-")
	if want := "<stdin>:1:1: Cluster a is defined twice"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an object in two files: got %v, want %q", err, want)
	}
	_, err = Read(nil, filepath.Join(dir, "none.yaml"), filepath.Join(dir, "README.md"))
	if err == nil || !strings.Contains(err.Error(), "none.yaml: no such file") ||
		!strings.Contains(err.Error(), "README.md:1:1") {
		t.Errorf("a missing and a wrong file: got %v, want both", err)
	}
	if _, err = Read(nil, t.TempDir()); err == nil {
		t.Error("an empty folder: got no error")
	}
	if _, err = Read(strings.NewReader("# nothing\n---\n"), "-"); err == nil {
		t.Error("no object: got no error")
	}
}

// FuzzParse finds texts that crash the reader, and faults without a position.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"kind": "Service", "name": "web", "definition": "web@1", "count": 1}`))
	f.Add([]byte("kind: Cluster\nname: &a [*a]\n<<: *a\n? b\n: c\n"))
	f.Add([]byte("%YAML 1.2\n---\nkind: Job\nsteps: [{name: a, count: 0x10, retries: .inf}]\n"))
	f.Add([]byte("kind: !!str Job\nname: >-\n  folded\n\tx: |2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		objects, err := Parse("m", data)
		for _, o := range objects {
			if o.Value == nil || o.Line < 1 || o.Column < 1 {
				t.Fatalf("object without value or place: %+v", o)
			}
		}
		if err == nil {
			return
		}
		var faults Faults
		if !errors.As(err, &faults) {
			t.Fatalf("an error of another kind: %v", err)
		}
		for _, fault := range faults {
			if fault.Message == "" || fault.File != "m" {
				t.Fatalf("fault without message or file: %+v", fault)
			}
		}
	})
}
