package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFaultsTogether reads objects with several faults. One run finds all that were written, and none that only
// follows from another.
func TestFaultsTogether(t *testing.T) {
	definition := "kind: TaskDefinition\nname: web\nversion: 1\n"
	service := "kind: Service\nname: web\ndefinition: web@1\ncount: 3\n"
	tests := []struct {
		name, text string
		want       []string
	}{
		{
			"a type fault hides no other of its element", definition + "containers:\n- name: App\n  image: web:1\n" +
				"  user: '-1'\n  init: maybe\n  imgae: x\n  dir: tmp\n  resources: {cpu: lots, memory: 5}\n",
			[]string{
				`m:5:9: containers[0].name: "App" is not a name: …`,
				`m:7:9: containers[0].user: "-1" is not a user: …`,
				`m:8:9: containers[0].init: want true or false, found the text "maybe"`,
				`m:9:3: containers[0]: unknown field "imgae": did you mean "image"?`,
				`m:10:8: containers[0].dir: "tmp" is not an absolute path …`,
				`m:11:20: containers[0].resources.cpu: "lots" is not an amount of CPU: …`,
				`m:11:34: containers[0].resources.memory: is 5 B, want from 1 MiB …`,
			},
		},
		{
			"a misspelt kind hides no fault", "kind: service\nname: Web\ndefinition: web@1\ncount: many\n",
			[]string{
				`m:1:7: kind: unknown kind "service": did you mean "Service"?`,
				`m:2:7: name: "Web" is not a name: …`,
				`m:4:8: count: want a whole number, found the text "many"`,
			},
		},
		{
			"a missing kind hides no fault", "name: Web\nsteps: [{name: a}]\n",
			[]string{
				`m:1:1: kind: is missing: the fields are those of a Job, so write kind: Job`,
				`m:1:7: name: "Web" is not a name: …`,
				`m:2:9: steps[0].definition: is missing: write definition: NAME@VERSION, or template: …`,
			},
		},
		{
			"a word of Kubernetes hides no fault", "apiVersion: v1\nkind: Cluster\nname: C\n",
			[]string{
				`m:1:1: unknown field "apiVersion": leave it out: …`,
				`m:3:7: name: "C" is not a name: …`,
			},
		},
		{
			"a refused image is no missing one", definition + "containers: [{name: a, image: 1.5}]\n",
			[]string{`m:4:31: containers[0].image: want text, found the number 1.5: put it in quotes, "1.5"`},
		},
		{
			"a misspelt image is no missing one", definition + "containers: [{name: a, imagge: a:1}]\n",
			[]string{`m:4:24: containers[0]: unknown field "imagge": did you mean "image"?`},
		},
		{
			"names in refused lists are not unknown", definition + "containers: [{name: a, image: a:1, " +
				"mounts: [{volume: data, path: /data}]}]\nports: http\nvolumes: {data: {}}\n" +
				"checks: [{name: a, type: http, port: http}, {name: b, type: http, port: http, " +
				"fail_after: -1}]\n",
			[]string{
				`m:5:8: ports: want a list, found the text "http"`,
				`m:6:10: volumes: want a list, found an object: write [{name: data, …}]`,
				`m:7:91: checks[1].fail_after: is -1, …`,
			},
		},
		{
			"a list in another place is known", definition + "containers: [{name: a, image: a:1, ports: " +
				"[{name: http}]}]\nchecks: [{name: a, type: http, port: http}]\n",
			[]string{
				`m:4:36: containers[0]: unknown field "ports" in a container: it belongs at the top level …`,
			},
		},
		{
			"bounds that follow from a refused field", service + "scaling: {min: 1, max: lots, targets: " +
				"[{metric: cpu, target: -1}]}\nupdate: {healthy_deadline: soon, progress_deadline: 1m}\n",
			[]string{
				`m:5:24: scaling.max: want a whole number, found the text "lots"`,
				`m:5:62: scaling.targets[0].target: is -1, want a number of more than 0`,
				`m:6:28: update.healthy_deadline: "soon" is not a duration: …`,
			},
		},
		{
			"a misspelt scaling gives the count", "kind: Service\nname: web\ndefinition: web@1\n" +
				"scalling: {min: 1, max: 2}\n",
			[]string{`m:4:1: unknown field "scalling": did you mean "scaling"?`},
		},
		{
			"elements keep their numbers", definition + "containers:\n- \n- {name: B, image: a:1}\n",
			[]string{
				`m:5:2: containers[0]: want a value, found nothing: …`,
				`m:6:10: containers[1].name: "B" is not a name: …`,
			},
		},
		{
			"an unknown anchor hides no fault",
			"kind: Service\nname: *nobody\ndefinition: web@1\ncount: -2\n<<: *no\n",
			[]string{
				`m:2:7: *nobody: no anchor &nobody comes before it in the document`,
				`m:4:8: count: is -2, want a number from 0 to 100000`,
				`m:5:5: *no: no anchor &no comes before it in the document`,
			},
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

// matched returns the lines of an error; one that begins as the wanted line does, up to a "…" at its end, is the wanted
// line.
func matched(err error, want []string) []string {
	got := strings.Split(err.Error(), "\n")
	for i, line := range want {
		if i == len(got) {
			break
		}
		if head, ok := strings.CutSuffix(line, "…"); ok && strings.HasPrefix(got[i], head) {
			got[i] = line
		}
	}
	return got
}
