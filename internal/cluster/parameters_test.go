package cluster_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

func TestParametersOfTasks(t *testing.T) {
	matrix := &cluster.Parameters{Matrix: map[string][]string{"OS": {"linux", "darwin"}, "ARCH": {"amd64", "arm64"}}}
	list := &cluster.Parameters{List: []map[string]string{{"SEED": "7"}, {"SEED": "11"}}}
	for _, c := range []struct {
		p    *cluster.Parameters
		want []map[string]string
	}{
		{nil, nil},
		{list, []map[string]string{{"SEED": "7"}, {"SEED": "11"}}},
		{matrix, []map[string]string{
			{"ARCH": "amd64", "OS": "linux"},
			{"ARCH": "amd64", "OS": "darwin"},
			{"ARCH": "arm64", "OS": "linux"},
			{"ARCH": "arm64", "OS": "darwin"},
		}},
	} {
		var got []map[string]string
		for i := range c.p.Tasks() {
			got = append(got, c.p.Of(i))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.p, diff)
		}
		if got := c.p.Of(c.p.Tasks()); got != nil {
			t.Errorf("a task that does not exist has the parameters %v", got)
		}
	}
}

// TestEachCombinationOnce checks that the tasks of a matrix have each combination of values, and each once.
func TestEachCombinationOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &cluster.Parameters{Matrix: map[string][]string{}}
		want := 1
		for i := range rapid.IntRange(1, 4).Draw(t, "parameters") {
			n := rapid.IntRange(1, 5).Draw(t, "values")
			for k := range n {
				name := fmt.Sprintf("P%d", i)
				p.Matrix[name] = append(p.Matrix[name], fmt.Sprint(k))
			}
			want *= n
		}
		seen := map[string]bool{}
		for i := range p.Tasks() {
			values := p.Of(i)
			if len(values) != len(p.Matrix) {
				t.Fatalf("task %d has %v, want %d parameters", i, values, len(p.Matrix))
			}
			seen[fmt.Sprint(values)] = true
		}
		if len(seen) != want || p.Tasks() != want {
			t.Errorf("%d tasks have %d combinations, want %d", p.Tasks(), len(seen), want)
		}
	})
}

func TestCountFollowsParameters(t *testing.T) {
	job := cluster.Job{Name: "w", Steps: []cluster.Step{
		{Name: "a", Parameters: &cluster.Parameters{
			Matrix: map[string][]string{"A": {"1", "2"}, "B": {"1", "2", "3"}},
		}},
		{Name: "b"},
	}}
	job.SetDefaults()
	if job.Steps[0].Count != 6 || job.Steps[1].Count != 1 {
		t.Errorf("the steps have %d and %d tasks, want 6 and 1", job.Steps[0].Count, job.Steps[1].Count)
	}
}

func TestParametersBesideADefinition(t *testing.T) {
	p := &cluster.Parameters{List: []map[string]string{{"TOKEN": "1", "CART": "1", "PLAIN": "1"}}}
	def := &cluster.TaskDefinition{Containers: []cluster.Container{{
		Name: "main", Secrets: []cluster.SecretUse{{Secret: "s", Env: "TOKEN"}}, Env: map[string]string{"PLAIN": "0"},
		Services: []cluster.ServiceUse{{Service: "cart", Env: "CART"}},
		Files:    []cluster.File{{Path: "/run/berth-task/own", Template: true}},
	}}}
	want := cluster.Faults{
		{"p", "the parameter CART is a variable of the container main that has the addresses of a service: rename one " +
			"of the two"},
		{"p", "the parameter TOKEN is a variable of the container main that has a secret: rename one of the two"},
		{"p", "the container main has something of its own in /run/berth-task, where Berth puts the parameters"},
	}
	if diff := cmp.Diff(want, p.CheckDefinition("p", def)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
