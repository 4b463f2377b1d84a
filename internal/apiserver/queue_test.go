package apiserver

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// rows returns a queue as text.
func rows(q api.Queue) (out []string) {
	for _, e := range q.Entries {
		out = append(out, fmt.Sprintf("%d %s %s ×%d %s %s", e.Position, e.Owner, e.Step, e.Tasks, e.Reason, e.Message))
	}
	return out
}

// TestQueue lists what waits in its order, and groups tasks with one reason. A token of a cluster sees its own entries
// only, with their positions among all.
func TestQueue(t *testing.T) {
	s, red, blue := limits(t)
	s.want(201, "PUT", "/v1/definitions/batch/1", definition("batch", 1))
	late := job("late", "batch@1", 3)
	late["priority"] = "low"
	s.want(201, "PUT", "/v1/clusters/red/jobs/late", late)
	soon := job("soon", "batch@1", 1)
	soon["priority"] = "high"
	s.want(201, "PUT", "/v1/clusters/blue/jobs/soon", soon)
	held := job("held", "batch@1", 2)
	held["hold"] = true
	s.want(201, "PUT", "/v1/clusters/blue/jobs/held", held)
	for i := range 3 {
		task := cluster.TaskID(fmt.Sprintf("red.late.1.work.%d", i))
		s.why.all[task] = cluster.Waiting{
			Task: task, Sentence: fmt.Sprintf("cause %d beside blue.soon.1.work.0", i/2),
			Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonShortCPU}}},
		}
	}
	for _, c := range []struct {
		token, path string
		want        []string
	}{
		{s.access(cluster.RoleViewer), "/v1/queue", []string{
			"1 blue/job/soon work ×1  ",
			"2 red/service/web  ×2  ",
			"4 blue/service/web  ×2  ",
			"6 red/job/late work ×2 cpu cause 0 beside blue.soon.1.work.0",
			"8 red/job/late work ×1 cpu cause 1 beside blue.soon.1.work.0",
			"0 blue/job/held work ×2 hold the job is on hold: berth release job/held",
		}},
		{red, "/v1/queue", []string{
			"2 red/service/web  ×2  ",
			"6 red/job/late work ×2 cpu cause 0 beside a task",
			"8 red/job/late work ×1 cpu cause 1 beside a task",
		}},
		{blue, "/v1/queue?cluster=blue", []string{
			"1 blue/job/soon work ×1  ",
			"4 blue/service/web  ×2  ",
			"0 blue/job/held work ×2 hold the job is on hold: berth release job/held",
		}},
		{red, "/v1/queue?cluster=red", []string{
			"2 red/service/web  ×2  ",
			"6 red/job/late work ×2 cpu cause 0 beside a task",
			"8 red/job/late work ×1 cpu cause 1 beside a task",
		}},
	} {
		q := read[api.Queue](t, s.ask(s.plain, c.token, "GET", c.path, nil))
		if diff := cmp.Diff(c.want, rows(q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.path, diff)
		}
		if q.Tasks != 8 {
			t.Errorf("%s: %d tasks are in line, want 8", c.path, q.Tasks)
		}
	}
	for _, path := range []string{"/v1/queue?cluster=blue", "/v1/queue?cluster=none"} {
		if got := s.ask(s.plain, red, "GET", path, nil); got.status != 404 {
			t.Errorf("%s: status %d, want 404: %s", path, got.status, got.body)
		}
	}
}
