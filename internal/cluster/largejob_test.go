package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// stepsWith returns so many steps, each with a template of a command.
func stepsWith(n int, command func(i int) string) []cluster.Step {
	all := make([]cluster.Step, n)
	for i := range all {
		all[i].Name = fmt.Sprint("s", i)
		all[i].Template = &cluster.InlineDefinition{TaskDefinition: cluster.TaskDefinition{
			Containers: []cluster.Container{{Name: "main", Command: []string{command(i)}}},
		}}
	}
	return all
}

// Templates of one content share a definition in jobs with more steps than a job may have definitions, and only there.
func TestTemplatesOfLargeJobs(t *testing.T) {
	parity := func(i int) string { return fmt.Sprint("run", i%2) }
	for steps, want := range map[int]int{10: 10, cluster.MaxTemplates: cluster.MaxTemplates, cluster.MaxSteps: 3} {
		job := &cluster.Job{Name: "j", Steps: stepsWith(steps, parity)}
		job.Steps[4].Template.Name = "own"
		job.SetDefaults()
		names := map[string]bool{}
		for i := range job.Steps {
			names[job.Steps[i].Template.Name] = true
		}
		if len(names) != want {
			t.Errorf("%d steps have %d definitions, want %d", steps, len(names), want)
		}
		if !names["own"] || !names["j-s0"] || !names["j-s1"] {
			t.Errorf("the definitions of %d steps lack own, j-s0 or j-s1", steps)
		}
		if err := job.Validate(); err != nil {
			t.Errorf("%d steps: %v", steps, err)
		}
	}
}

func TestLimitsOfLargeJobs(t *testing.T) {
	same := func(int) string { return "run" }
	tests := []struct {
		name string
		job  func() []cluster.Step
		want string // "" for none
	}{
		{"most steps", func() []cluster.Step { return stepsWith(cluster.MaxSteps, same) }, ""},
		{
			"too many steps", func() []cluster.Step { return stepsWith(cluster.MaxSteps+1, same) },
			"steps: holds 10001 steps, at most 10000 are allowed",
		},
		{"too many templates", func() []cluster.Step {
			return stepsWith(cluster.MaxTemplates+1, func(i int) string { return fmt.Sprint("run", i) })
		}, "steps: have 1001 different templates, at most 1000 are allowed"},
		{"too many needs", func() []cluster.Step {
			steps := stepsWith(1100, same)
			for i := 1000; i < 1100; i++ {
				for k := range 600 {
					steps[i].Needs = append(steps[i].Needs, steps[k].Name)
				}
			}
			return steps
		}, "steps: need 60000 steps together, at most 50000 are allowed"},
		{"a long circle", func() []cluster.Step {
			steps := stepsWith(cluster.MaxSteps, same)
			for i := range steps {
				steps[i].Needs = []string{steps[(i+1)%len(steps)].Name}
			}
			return steps
		}, "steps[0].needs[0]: the steps need each other in a circle: s0 → s1 → s2 → s3 → s4 → s5 → " +
			"9992 others → s9998 → s9999 → s0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			job := &cluster.Job{Name: "j", Steps: test.job()}
			job.SetDefaults()
			err := job.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %.300v, want %q", err, test.want)
			}
		})
	}
}
