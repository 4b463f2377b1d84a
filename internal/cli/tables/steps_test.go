package tables_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cluster"
)

// A table of many steps has those that failed and run, and says what it leaves out.
func TestManySteps(t *testing.T) {
	var v api.JobView
	for i := range 2000 {
		s := api.StepStatus{Name: fmt.Sprint("s", i), State: cluster.StepSucceeded}
		switch {
		case i == 1500:
			s.State, s.Failed = cluster.StepFailed, 1
		case i >= 1000 && i < 1003:
			s.State, s.Running = cluster.StepRunning, 1
		case i > 1002:
			s.State = cluster.StepWaiting
		}
		v.Status.Steps = append(v.Status.Steps, s)
		v.Steps = append(v.Steps, api.Step{Name: s.Name, Needs: []string{"a", "b"}})
	}
	for _, test := range []struct {
		most   int
		want   []string
		hidden string
	}{
		{5, []string{"s0", "s1000", "s1001", "s1002", "s1500"}, "1995 steps (996 waiting, 999 succeeded)"},
		{3, []string{"s1000", "s1001", "s1500"}, "1997 steps (996 waiting, 1 running, 1000 succeeded)"},
	} {
		table, hidden := tables.StepTable(&v, test.most)
		var got []string
		for _, row := range table.Rows {
			got = append(got, row[0])
			if row[5] != "a, b" {
				t.Errorf("%s needs %q", row[0], row[5])
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" || hidden != test.hidden {
			t.Errorf("at most %d (-want +got):\n%shidden: got %q, want %q", test.most, diff, hidden, test.hidden)
		}
	}
	if table, hidden := tables.StepTable(&v, 2000); len(table.Rows) != 2000 || hidden != "" {
		t.Errorf("%d rows of 2000, hidden: %q", len(table.Rows), hidden)
	}
}
