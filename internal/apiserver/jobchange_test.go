package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// jobWithFailures returns a world with the job sum, whose tasks 0 and 1 of 3 failed. It has no retries.
func jobWithFailures(t *testing.T) *world {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	w.want(201, "PUT", "/v1/clusters/default/jobs/sum", job("sum", "adder@1", 3))
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "sum"}
	for i := range 2 {
		id := cluster.JobTask("default", "sum", 1, "work", i)
		w.put(map[string]any{fmt.Sprintf("attempt/%s/1", id): cluster.Outcome{
			Task: id, Attempt: 1, Node: "n1", Owner: owner, Definition: cluster.Ref{Name: "adder", Version: 1},
			State: cluster.StateFailed, Reason: cluster.ReasonExit, Started: true,
			Placed: noon.Add(time.Duration(i) * time.Minute), Ended: noon.Add(time.Hour), Exit: &cluster.Exit{Code: 1},
		}})
	}
	return w
}

// TestRetriesOfJobs has failed tasks tried again, one and then all, and refuses what has not failed.
func TestRetriesOfJobs(t *testing.T) {
	w := jobWithFailures(t)
	const path = "/v1/clusters/default/jobs/sum"
	status := func() (st api.JobStatus) { return read[api.JobView](t, w.want(200, "GET", path, nil)).Status }
	if st := status(); st.State != cluster.JobFailed || st.Failed != 2 || st.Cancelled != 1 {
		t.Fatalf("before: %+v", st)
	}
	got := w.want(422, "POST", path+"/retry",
		api.RetryRequest{Tasks: []cluster.TaskID{"default.sum.1.work.2", "default.sum.1.work.0", "x"}})
	for _, want := range []string{
		"tasks[0]: default.sum.1.work.2 is no task of job default/sum that has failed for good", "tasks[2]: x",
	} {
		if !strings.Contains(got.faults(), want) {
			t.Errorf("no %q in %s", want, got.faults())
		}
	}
	w.want(200, "POST", path+"/retry", api.RetryRequest{Tasks: []cluster.TaskID{"default.sum.1.work.1"}})
	if st := status(); st.State != cluster.JobRunning || st.Failed != 1 || st.Pending != 1 || st.Cancelled != 1 {
		t.Errorf("after the retry of one: %+v", st)
	}
	w.want(422, "POST", path+"/retry", api.RetryRequest{Tasks: []cluster.TaskID{"default.sum.1.work.1"}})
	many := make([]cluster.TaskID, cluster.MaxRetriedTasks+1)
	if got := w.want(422, "POST", path+"/retry", api.RetryRequest{Tasks: many}); len(got.body) > 1000 {
		t.Errorf("%d tasks in a request are answered with %d bytes", len(many), len(got.body))
	}
	w.want(200, "POST", path+"/retry", nil)
	if st := status(); st.State != cluster.JobRunning || st.Failed != 0 || st.Pending != 3 {
		t.Errorf("after the retry of all: %+v", st)
	}
	got = w.want(409, "POST", path+"/retry", nil)
	if want := "no task of job default/sum has failed for good"; !strings.Contains(string(got.body), want) {
		t.Errorf("no %q in %s", want, got.body)
	}
	// A new run begins without retries, and a cancelled one begins nothing.
	if v := read[api.JobView](t, w.want(200, "POST", path+"/restart", nil)); !v.Retried.All.IsZero() ||
		v.Retried.Tasks != nil {
		t.Errorf("after the restart: %+v", v.Retried)
	}
	w.want(200, "POST", path+"/stop", nil)
	got = w.want(409, "POST", path+"/retry", nil)
	if want := "berth restart default/job/sum"; !strings.Contains(string(got.body), want) {
		t.Errorf("no %q in %s", want, got.body)
	}
}

// TestRetriesOfManyTasks has more single tasks of a job tried again than its record may name.
func TestRetriesOfManyTasks(t *testing.T) {
	w := jobWithFailures(t)
	const path = "/v1/clusters/default/jobs/sum"
	v := read[api.JobView](t, w.want(200, "GET", path, nil))
	j := v.Job
	j.Retried.Tasks = map[string]time.Time{}
	for i := range cluster.MaxRetriedTasks {
		j.Retried.Tasks[cluster.RetriedTask("gone", i)] = noon
	}
	w.put(map[string]any{"job/default/sum": &j})
	got := w.want(409, "POST", path+"/retry", api.RetryRequest{Tasks: []cluster.TaskID{"default.sum.1.work.0"}})
	if want := "retry all failed tasks"; !strings.Contains(string(got.body), want) {
		t.Errorf("no %q in %s", want, got.body)
	}
	w.want(200, "POST", path+"/retry", nil)
}

// TestHoldsAndPrioritiesOfJobs changes both without a new run, and keeps the job's place among those that wait.
func TestHoldsAndPrioritiesOfJobs(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	const path = "/v1/clusters/default/jobs/sum"
	before := read[api.JobView](t, w.want(201, "PUT", path, job("sum", "adder@1", 3)))
	for _, step := range []struct {
		action   string
		body     any
		hold     bool
		priority api.Priority
		written  bool
	}{
		{"hold", nil, true, 500, true},
		{"hold", nil, true, 500, false},
		{"priority", api.PriorityRequest{Priority: 700}, true, 700, true},
		{"priority", api.PriorityRequest{Priority: 700}, true, 700, false},
		{"release", nil, false, 700, true},
	} {
		v := read[api.JobView](t, w.want(200, "POST", path+"/"+step.action, step.body))
		if v.Hold != step.hold || v.Priority != step.priority || v.Generation != 1 ||
			!v.Submitted.Equal(before.Submitted) || v.Submitted.IsZero() ||
			v.Revision > before.Revision != step.written {
			t.Errorf("%s: %+v at revision %d after %d", step.action, v.Job, v.Revision, before.Revision)
		}
		held := strings.Contains(v.Status.Message, "the job is on hold: berth release default/job/sum")
		if held != step.hold {
			t.Errorf("%s: message %q", step.action, v.Status.Message)
		}
		before.Revision = v.Revision
	}
	for _, p := range []api.Priority{0, -1, 1001} {
		w.want(422, "POST", path+"/priority", api.PriorityRequest{Priority: p})
	}
	var kinds []string
	for _, e := range read[api.Page[api.EventView]](t, w.want(200, "GET", "/v1/events?job=sum", nil)).Items {
		kinds = append(kinds, e.Type)
	}
	slices.Sort(kinds)
	if want := []string{"job.created", "job.held", "job.released", "job.updated"}; !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

// TestJobsThatEndWithoutATask cancels a job of which nothing runs: the request is its end, once. A job of which a task
// runs ends with the report of that task. A job that has ended is not put on hold.
func TestJobsThatEndWithoutATask(t *testing.T) {
	for _, running := range []bool{false, true} {
		w := newWorld(t)
		const path = "/v1/clusters/default/jobs/sum"
		w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
		w.want(201, "PUT", path, job("sum", "adder@1", 2))
		var want []string
		if running {
			d := desired(cluster.JobTask("default", "sum", 1, "work", 0), 1, cluster.KindJob,
				cluster.Ref{Name: "adder", Version: 1})
			w.put(map[string]any{
				"state/n1/" + string(d.Task):  d,
				"status/n1/" + string(d.Task): observed(d, cluster.StateRunning, cluster.HealthUnknown),
			})
		} else {
			want = []string{"job.cancelled"}
		}
		for range 2 {
			w.want(200, "POST", path+"/stop", nil)
		}
		var got []string
		for _, e := range read[api.Page[api.EventView]](t, w.want(200, "GET", "/v1/events?job=sum", nil)).Items {
			if e.Type == "job.cancelled" {
				got = append(got, e.Type)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("running %v: events %v, want %v", running, got, want)
		}
		if running {
			w.want(200, "POST", path+"/hold", nil)
			continue
		}
		const message = "default/job/sum has ended (cancelled), so nothing of it can be on hold"
		if r := w.want(409, "POST", path+"/hold", nil); !strings.Contains(string(r.body), message) {
			t.Errorf("no %q in %s", message, r.body)
		}
	}
}

// TestKeysOfSubmissions submits a job twice with a key, after its user changed it, and then with another key.
func TestKeysOfSubmissions(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	const path = "/v1/clusters/default/jobs/sum"
	submit := func(key string, count int) api.Change {
		spec := job("sum", "adder@1", count)
		spec["key"] = key
		return read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", manifestsOf("Job", spec))).Changes[0]
	}
	submit("build-17", 2)
	w.want(200, "POST", path+"/hold", nil)
	w.want(200, "POST", path+"/stop", nil)
	before := read[api.JobView](t, w.want(200, "GET", path, nil))
	for _, count := range []int{2, 3} {
		c := submit("build-17", count)
		if want := `the key "build-17" was submitted before`; c.Action != api.ActionNone || c.Note != want {
			t.Errorf("the second submission: %+v, want the note %q", c, want)
		}
	}
	after := read[api.JobView](t, w.want(200, "GET", path, nil))
	if after.Revision != before.Revision || !after.Cancelled || !after.Hold || after.Steps[0].Count != 2 {
		t.Errorf("the second submission changed %+v to %+v", before, after)
	}
	// A write that names the revision that it changes, as berth edit does, is no repeated submission.
	edited := job("sum", "adder@1", 2)
	edited["key"], edited["cancelled"], edited["hold"], edited["priority"] = "build-17", true, true, 700
	etag := fmt.Sprintf("%q", fmt.Sprint(after.Revision))
	v := read[api.JobView](t, w.want(200, "PUT", path, edited, "If-Match", etag))
	if v.Priority != 700 || v.Generation != before.Generation {
		t.Errorf("an edit of a job with a key: %+v", v.Job)
	}
	if c := submit("build-18", 2); c.Action != api.ActionUpdate || c.Effect != "restarts all 2 tasks" {
		t.Errorf("another key: %+v", c)
	}
	again := read[api.JobView](t, w.want(200, "GET", path, nil))
	if again.Generation != before.Generation+1 || again.Cancelled {
		t.Errorf("another key did not run the job again: %+v", again)
	}
}
