package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/memory"
)

// batchQueue is a cluster with a node of four processors, at a time.
type batchQueue struct {
	*world
	now time.Time
}

// clockAt lets a server's clock stand at a time.
func clockAt(now time.Time) func(*Config) {
	return func(c *Config) { c.Now = func() time.Time { return now } }
}

// newBatchQueue returns a cluster in which twelve tasks of the job tests-1 ran for ten minutes each, and the four tasks
// of tests-2 have run for two minutes.
func newBatchQueue(t *testing.T, engine *memory.Engine, options ...func(*Config)) *batchQueue {
	t.Helper()
	q := &batchQueue{now: noon.Add(24 * time.Hour)}
	q.world = newWorldOn(t, engine, append(options, clockAt(q.now))...)
	d := definition("tests", 1)
	d["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"cpu": "1", "memory": "1GiB"}
	q.want(201, "PUT", "/v1/definitions/tests/1", d)
	q.submit("tests-1", 12)
	q.submit("tests-2", 4)
	records := map[string]any{
		"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default", Since: noon, Session: 1},
		"status/n1": cluster.NodeStatus{
			Name: "n1", Session: 1, Synced: true, Registered: noon,
			Facts: cluster.Facts{
				Hostname: "n1", CPU: 4000, Memory: 16 * cluster.GiB, Disk: 100 * cluster.GiB,
				Executors: []cluster.ExecutorFact{{Name: "containerd"}},
			},
		},
	}
	for i := range 12 {
		d := desired(cluster.JobTask("default", "tests-1", 1, "work", i), 1, cluster.KindJob, testsRef())
		ended := outcome(d, cluster.StateSucceeded, "")
		ended.Begun = q.now.Add(-time.Hour + time.Duration(i)*time.Second)
		ended.Ended, ended.Reason = ended.Begun.Add(10*time.Minute), ""
		records[fmt.Sprintf("attempt/%s/1", d.Task)] = ended
	}
	for i := range 4 {
		d := desired(cluster.JobTask("default", "tests-2", 1, "work", i), 1, cluster.KindJob, testsRef())
		d.Ports, d.TimeLimit, d.Placed = nil, cluster.Duration(time.Hour), q.now.Add(-2*time.Minute)
		o := observed(d, cluster.StateRunning, cluster.HealthHealthy)
		o.Started = d.Placed
		records["state/n1/"+string(d.Task)], records["status/n1/"+string(d.Task)] = d, o
	}
	q.put(records)
	return q
}

func testsRef() cluster.Ref { return cluster.Ref{Name: "tests", Version: 1} }

// submit submits a job of tasks for one processor and an hour.
func (q *batchQueue) submit(name string, count int) {
	j := job(name, "tests@1", count)
	j["steps"].([]any)[0].(map[string]any)["time_limit"] = "1h"
	q.want(201, "PUT", "/v1/clusters/default/jobs/"+name, j)
}

// TestExpectedStarts forecasts the start of waiting tasks from the run times of tasks of jobs with like names. Another
// server, which has just started, gives the same forecast. Tasks that wait for something else than room have none.
func TestExpectedStarts(t *testing.T) {
	engine := memory.New(memory.Options{})
	q := newBatchQueue(t, engine)
	q.submit("tests-3", 6)
	q.submit("tests-4", 3)
	held := job("held", "tests@1", 1)
	held["hold"] = true
	q.want(201, "PUT", "/v1/clusters/default/jobs/held", held)
	for i := range 3 {
		task := cluster.JobTask("default", "tests-4", 1, "work", i)
		q.why.all[task] = cluster.Waiting{
			Task: task, Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonVolume}}},
		}
	}
	got := read[api.Queue](t, q.want(200, "GET", "/v1/queue", nil))
	if len(got.Entries) != 3 || got.Entries[1].Expected != nil || got.Entries[2].Expected != nil {
		t.Fatalf("queue %+v, want a forecast of the first entry alone", got.Entries)
	}
	first, last := got.Entries[0].Expected, got.Entries[0].ExpectedLast
	if first == nil || last == nil {
		t.Fatalf("entry %+v, want forecasts", got.Entries[0])
	}
	near := func(name string, at time.Time, low, high time.Duration) {
		t.Helper()
		if after := at.Sub(q.now); after < low || after > high {
			t.Errorf("%s after %s, want %s to %s", name, after, low, high)
		}
	}
	// The four running tasks end after ten minutes, thus in eight. The last two of six tasks wait for the next end.
	near("the first task", first.Median, 7*time.Minute, 8*time.Minute+time.Second)
	near("the latest start of the first task", first.To, 8*time.Minute, 58*time.Minute)
	near("the last task", last.Median, 8*time.Minute, 40*time.Minute)
	if !first.From.Before(first.To) && !first.From.Equal(first.To) || last.Median.Before(first.Median) {
		t.Errorf("first %+v, last %+v", first, last)
	}

	if diff := cmp.Diff([]string{"n1"}, first.Nodes); diff != "" {
		t.Errorf("nodes that free the room (-want +got):\n%s", diff)
	}
	second := newWorldOn(t, engine, clockAt(q.now))
	second.why.all = q.why.all
	other := read[api.Queue](t, second.want(200, "GET", "/v1/queue", nil))
	if diff := cmp.Diff(got.Entries, other.Entries); diff != "" {
		t.Errorf("another server's queue:\n%s", diff)
	}
	x := q.explain("/v1/clusters/default/jobs/tests-3")
	if len(x.Because) == 0 || x.Because[0].Expected == nil || !x.Because[0].Expected.Median.Equal(first.Median) {
		t.Errorf("explanation %+v, want the forecast of the queue", x.Because)
	}
}

// TestExpectedStartsOfLongQueues forecasts a queue of 10,000 jobs behind one of a million tasks. Only the first
// requests have a forecast, and the next answer has the same one.
func TestExpectedStartsOfLongQueues(t *testing.T) {
	q := newBatchQueue(t, memory.New(memory.Options{}))
	q.submit("million", 1_000_000)
	jobs := map[string]any{}
	for i := range 10_000 {
		name := fmt.Sprintf("tests-%d", 100+i)
		jobs["job/default/"+name] = cluster.Job{
			Cluster: "default", Name: name, Priority: cluster.DefaultPriority,
			Lifespan: cluster.Lifespan{Generation: 1, Created: q.now, Updated: q.now},
			Steps: []cluster.Step{{
				Name: "work", Definition: testsRef(), Count: 1, TimeLimit: cluster.Duration(time.Hour),
			}},
		}
		if len(jobs) == 1000 {
			q.put(jobs)
			clear(jobs)
		}
	}
	var took [2]time.Duration
	var before []api.QueueEntry
	for i := range took {
		began := time.Now()
		got := read[api.Queue](t, q.want(200, "GET", "/v1/queue", nil))
		took[i] = time.Since(began)
		forecasts := 0
		for _, e := range got.Entries {
			if e.Expected != nil {
				forecasts++
			}
			if e.Owner.Name == "million" && (e.Expected == nil || e.Expected.Median.IsZero()) {
				t.Errorf("the job of a million tasks: %+v, want a forecast of its first task", e.Expected)
			}
		}
		if got.Tasks < 1_010_000 || forecasts < 1000 || forecasts > 2000 {
			t.Errorf("%d tasks in line, %d of %d entries with a forecast", got.Tasks, forecasts, len(got.Entries))
		}
		if i > 0 {
			if diff := cmp.Diff(before, got.Entries); diff != "" {
				t.Errorf("another answer:\n%s", diff)
			}
		}
		before = got.Entries
	}
	t.Logf("the first answer took %s, the next one %s", took[0], took[1])
}

// TestGangsAreOneSample checks that a gang of many tasks, which all ran for the same time, is one of the run times of
// its job's name, and that a step of many tasks is ten of them at most.
func TestGangsAreOneSample(t *testing.T) {
	q := newBatchQueue(t, memory.New(memory.Options{}))
	gang := job("tests-0", "tests@1", 50)
	step := gang["steps"].([]any)[0].(map[string]any)
	step["time_limit"], step["gang"] = "1h", map[string]any{}
	q.want(201, "PUT", "/v1/clusters/default/jobs/tests-0", gang)
	q.submit("other-1", 50)
	records := map[string]any{}
	for _, name := range []string{"tests-0", "other-1"} {
		for i := range 50 {
			d := desired(cluster.JobTask("default", name, 1, "work", i), 1, cluster.KindJob, testsRef())
			ended := outcome(d, cluster.StateSucceeded, "")
			ended.Begun, ended.Ended, ended.Reason = q.now.Add(-59*time.Minute), q.now, ""
			records[fmt.Sprintf("attempt/%s/1", d.Task)] = ended
		}
	}
	q.put(records)
	q.submit("tests-3", 1)
	got := read[api.Queue](t, q.want(200, "GET", "/v1/queue", nil))
	if len(got.Entries) != 1 || got.Entries[0].Expected == nil {
		t.Fatalf("queue %+v", got.Entries)
	}
	if after := got.Entries[0].Expected.Median.Sub(q.now); after > 10*time.Minute {
		t.Errorf("expected after %s, want the run time of the other tasks of the name", after)
	}
}
