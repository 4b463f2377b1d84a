package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestTasksOfLargeJobs lists the tasks of a job with 1,500 of them, of which two wait one by one and 601 have succeeded
// and are packed. The lists show ranges; all tasks together are those of the job. Each task can be read by itself.
func TestTasksOfLargeJobs(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	w.want(201, "PUT", "/v1/clusters/default/jobs/sum", job("sum", "adder@1", 1500))
	records := map[string]any{}
	for part, indices := range [][2]int{{0, 500}, {510, 611}} {
		p := &cluster.PackedTasks{
			Cluster: "default", Job: "sum", Generation: 1, Step: "work", Part: part,
			Definition: cluster.Ref{Name: "adder", Version: 1},
		}
		var ended []*cluster.Outcome
		for i := indices[0]; i < indices[1]; i++ {
			ended = append(ended, &cluster.Outcome{
				Task: cluster.JobTask("default", "sum", 1, "work", i), Attempt: 1, Node: "n1",
				UUID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), State: cluster.StateSucceeded,
				Placed: noon, Begun: noon, Ended: noon.Add(time.Minute),
			})
		}
		records[fmt.Sprintf("packed/default.sum.1.work.%d", part)] = p.With(ended)
	}
	w.put(records)
	list := func(query string) (rows []string, total int) {
		all := read[api.Page[api.TaskView]](t, w.want(200, "GET", "/v1/tasks?cluster=default&job=sum"+query, nil))
		for _, v := range all.Items {
			if len(rows) < 6 {
				rows = append(rows, fmt.Sprintf("%s +%d %s %s", v.ID, v.Further, v.State, v.Node))
			}
			total += 1 + v.Further
		}
		return rows, total
	}
	rows, total := list("")
	want := []string{
		"default.sum.1.work.0 +499 succeeded ", "default.sum.1.work.500 +0 pending ",
		"default.sum.1.work.501 +0 pending ", "default.sum.1.work.502 +0 pending ",
		"default.sum.1.work.503 +0 pending ", "default.sum.1.work.504 +0 pending ",
	}
	if diff := cmp.Diff(want, rows); diff != "" || total != 1500 {
		t.Errorf("%d tasks (-want +got):\n%s", total, diff)
	}
	// 500 to 509 wait before it, and 611 to 1199.
	w.why.all["default.sum.1.work.1200"] = cluster.Waiting{Task: "default.sum.1.work.1200", Sentence: "no room"}
	if x := w.explain("/v1/tasks/default.sum.1.work.1200"); len(x.Because) != 1 || x.Because[0].Position != 600 ||
		x.Because[0].Of != 899 {
		t.Errorf("explanation %+v, want position 600 of 899", x.Because)
	}
	rows, total = list("&state=succeeded")
	if total != 601 || rows[1] != "default.sum.1.work.1 +0 succeeded n1" {
		t.Errorf("%d tasks that succeeded: %v", total, rows)
	}
	if rows, total = list("&all=true"); total != 1500 {
		t.Errorf("%d of all tasks: %v", total, rows)
	}
	if rows, total = list("&state=running"); total != 0 {
		t.Errorf("%d running tasks: %v", total, rows)
	}
	st := read[api.JobView](t, w.want(200, "GET", "/v1/clusters/default/jobs/sum", nil)).Status
	if st.Succeeded != 601 || st.Pending != 899 || st.State != cluster.JobRunning {
		t.Errorf("status %+v", st)
	}
	v := read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.sum.1.work.77", nil))
	if v.State != cluster.StateSucceeded || v.Node != "n1" || v.UUID != "0000004d-0000-4000-8000-000000000000" ||
		!v.Finished.Equal(noon.Add(time.Minute)) || v.Exit == nil || v.Exit.Code != 0 {
		t.Errorf("a packed task: %+v", v)
	}
	v = read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.sum.1.work.1499", nil))
	if v.State != cluster.StatePending || v.Further != 0 {
		t.Errorf("a waiting task: %+v", v)
	}
	w.want(404, "GET", "/v1/tasks/default.sum.1.work.1500", nil)
	q := read[api.Queue](t, w.want(200, "GET", "/v1/queue", nil))
	if q.Tasks != 899 || len(q.Entries) != 1 || q.Entries[0].Tasks != 899 {
		t.Errorf("the queue: %d tasks, %+v", q.Tasks, q.Entries)
	}
}
