package reconciler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
)

// job returns a world with a job of one step, whose only task has an attempt in the given state.
func job(t *testing.T, state cluster.State, change func(*cluster.Step)) (*world, *record) {
	t.Helper()
	w := newWorld()
	step := cluster.Step{
		Name: "a", Definition: w.define("w@1", nil), Count: 1, Retries: 2,
		OnDisconnect: cluster.DisconnectKeep,
	}
	if change != nil {
		change(&step)
	}
	w.job = &cluster.Job{Name: "work", Steps: []cluster.Step{step}, Lifespan: cluster.Lifespan{Generation: 1}}
	w.job.SetDefaults()
	w.owner = w.job.Owner()
	if state == "" {
		return w, nil
	}
	if err := w.place(w.decide(nil).Pending[0], "n1"); err != nil {
		t.Fatal(err)
	}
	r := w.records[0]
	if state != cluster.StateAssigned {
		r.real = &cluster.Observed{Task: r.id, Attempt: 1, UUID: r.Desired.UUID, Node: "n1", State: state}
		w.report(r)
	}
	return w, r
}

// T1: the outcome compares the status and turns the desired record into a stop. A barrier that compares the desired
// record is then refused (P4.2, P4.3).
func TestALostBatchTaskIsStoppedWithItsOutcome(t *testing.T) {
	w, r := job(t, cluster.StatePreparing, nil)
	w.absent["n1"] = watcher.Silent
	d := w.decide(w.tasks())
	if len(d.Conclusions) != 1 || len(d.Pending) != 0 {
		t.Fatalf("%s", describe(d))
	}
	c := d.Conclusions[0]
	if c.DesiredRev != r.DesiredRev || c.ObservedRev != r.ObservedRev || c.Desired == nil || !c.Desired.Ended() {
		t.Errorf("the outcome does not compare what was seen and end the attempt: %+v", c)
	}
	if r.Desired.Stop != nil {
		t.Error("the decision changed its input")
	}
}

// T2: an attempt that only a plan record holds is not cleaned up or trimmed while that record may be projected. Its
// cleanup names the plan record that must go first (P3.4).
func TestAPlannedAttemptKeepsItsOutcome(t *testing.T) {
	w, r := job(t, cluster.StateAssigned, nil)
	r.DesiredRev, r.Desired.Plan = 0, 9
	r.Outcome = &cluster.Outcome{
		Task: r.id, Attempt: 1, UUID: r.Desired.UUID, Node: "n1",
		State: cluster.StateCancelled,
	}
	w.job.Deleted = true
	d := w.decide(w.tasks())
	if len(d.Trims) != 0 || len(d.Cleanups) != 0 || d.Remove {
		t.Errorf("%s", describe(d))
	}
	if len(d.Stops) != 1 || d.Stops[0].Rev != 0 || !d.Stops[0].Desired.Stop.Ended {
		t.Errorf("it is not projected as ended: %s", describe(d))
	}
	r.real = &cluster.Observed{
		Task: r.id, Attempt: 1, UUID: r.Desired.UUID, Node: "n1", State: cluster.StateCancelled,
		Gone: true,
	}
	w.report(r)
	d = w.decide(w.tasks())
	if len(d.Cleanups) != 1 || d.Cleanups[0].Plan != 9 {
		t.Errorf("the cleanup does not name its plan record: %+v", d.Cleanups)
	}
}

// T6: an attempt of a plan record with an unknown result keeps its task from being placed (P3.3, P3.5).
func TestAPlannedTaskIsNotPending(t *testing.T) {
	w, r := job(t, cluster.StateAssigned, nil)
	r.DesiredRev = 0
	if d := w.decide(w.tasks()); !d.Empty() {
		t.Errorf("%s", describe(d))
	}
}

// T14: a status without a desired record pins its task to the node (P3.5). It gets its desired record back once the
// node has reported; an unwanted task gets a record that stops it.
func TestAStatusAlonePinsItsTask(t *testing.T) {
	w, r := job(t, cluster.StateRunning, nil)
	lost := *r.Desired
	r.Desired, r.DesiredRev = nil, 0
	w.unreported["n1"] = true
	if d := w.decide(w.tasks()); !d.Empty() {
		t.Errorf("%s", describe(d))
	}
	w.unreported["n1"] = false
	if d := w.decide(w.tasks()); len(d.Adoptions) != 1 || d.Adoptions[0].Desired.UUID != lost.UUID ||
		d.Adoptions[0].Desired.Definition != lost.Definition || d.Adoptions[0].Desired.Stop != nil {
		t.Errorf("%s", describe(d))
	}
	w.job.Cancelled = true
	d := w.decide(w.tasks())
	if len(d.Stops) != 1 || d.Stops[0].Rev != 0 || d.Stops[0].Desired.UUID != r.Observed.UUID ||
		d.Stops[0].Desired.Node != "n1" {
		t.Errorf("%s", describe(d))
	}
}

func TestLossesAreFreeOnlySoOften(t *testing.T) {
	w, _ := job(t, "", func(s *cluster.Step) { s.Retries = 0 })
	placed := 0
	for ; placed < 20; placed++ {
		d := w.decide(w.tasks())
		if len(d.Pending) == 0 {
			break
		}
		node := fmt.Sprintf("m%d", placed)
		if err := w.place(d.Pending[0], node); err != nil {
			t.Fatal(err)
		}
		w.absent[node] = watcher.Gone
		w.commit(w.decide(w.tasks()))
	}
	if placed != cluster.MaxDispatches+1 {
		t.Errorf("placed %d times, want %d free of charge and one that counts", placed, cluster.MaxDispatches)
	}
	if st := reconciler.StatusOfJob(reconciler.JobInput{Spec: w.job, Tasks: w.tasks()}); st.State != cluster.JobFailed {
		t.Errorf("%+v", st)
	}
}

func TestDelaysGrowWithEachFailure(t *testing.T) {
	w := newWorld()
	w.service = &cluster.Service{
		Name: "web", Definition: w.define("web@1", nil), Count: 1,
		Lifespan: cluster.Lifespan{Generation: 1},
	}
	w.service.SetDefaults()
	w.owner = w.service.Owner()
	var delays []time.Duration
	for range 12 {
		d := w.decide(w.tasks())
		if len(d.Pending) == 0 {
			delays = append(delays, d.NextDecision.Sub(w.now))
			w.now = d.NextDecision
			d = w.decide(w.tasks())
		}
		if len(d.Pending) != 1 {
			t.Fatalf("%s", describe(d))
		}
		w.commit(d)
		if err := w.placeAll(d); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.step(w.records[len(w.records)-1])
		}
		w.crash(w.records[len(w.records)-1], cluster.ReasonRestartLimit)
		for range 3 { // outcome, end, cleanup
			w.commit(w.decide(w.tasks()))
			w.step(w.records[len(w.records)-1])
		}
	}
	want := []time.Duration{
		1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second,
		128 * time.Second, 256 * time.Second, reconciler.MaxDelay, reconciler.MaxDelay,
	}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(w.records); n > reconciler.KeptOutcomes+1 {
		t.Errorf("%d attempts are kept", n)
	}
}

func TestLongRunResetsFailures(t *testing.T) {
	w := newWorld()
	w.service = &cluster.Service{
		Name: "web", Definition: w.define("web@1", nil), Count: 1,
		Lifespan: cluster.Lifespan{Generation: 1},
	}
	w.service.SetDefaults()
	w.owner = w.service.Owner()
	outcome := func(n int, begun, ended time.Time) reconciler.Task {
		return reconciler.Task{Attempt: cluster.Attempt{Outcome: &cluster.Outcome{
			Task: "default.web.1.0", Attempt: n, Node: "n1", State: cluster.StateFailed, Begun: begun, Ended: ended,
		}}}
	}
	start := time.Unix(1000, 0)
	w.now = start.Add(time.Hour)
	d := w.decide([]reconciler.Task{
		outcome(1, start, start.Add(time.Second)), outcome(2, start, start.Add(time.Second)), outcome(3, start, w.now),
	})
	if len(d.Pending) != 1 || d.Pending[0].Attempt != 4 {
		t.Errorf("after an hour's run: %s", describe(d))
	}
}

func TestPendingCarriesWhatTheSchedulerNeeds(t *testing.T) {
	w := newWorld()
	ref := w.define("web@1", func(d *cluster.TaskDefinition) {
		d.Containers[0].Resources = cluster.Resources{CPU: 100, Memory: cluster.MiB}
		d.Ports = []cluster.Port{{Name: "http"}}
		d.Disk = cluster.GiB
	})
	own := cluster.Constraint{Attribute: "label.disk", Op: cluster.OpEqual, Value: "ssd"}
	common := cluster.Constraint{Attribute: "node.arch", Op: cluster.OpEqual, Value: "amd64"}
	updated := time.Unix(50, 0)
	s := &cluster.Service{
		Name: "web", Definition: ref, Count: 1, Priority: 700,
		Placement: cluster.Placement{Constraints: []cluster.Constraint{own}},
		Lifespan:  cluster.Lifespan{Generation: 3, Updated: updated},
	}
	s.SetDefaults()
	d := reconciler.Service(reconciler.ServiceInput{
		Spec: s, SpecRev: 11, Cluster: &cluster.Cluster{Constraints: []cluster.Constraint{common}},
		Now:         time.Unix(60, 0),
		Definitions: func(r cluster.Ref) *cluster.TaskDefinition { return w.definitions[r] },
	})
	want := []cluster.Pending{{
		Task: "default.web.3.0", Attempt: 1, Owner: s.Owner(), OwnerRev: 11, Definition: ref, Count: 1, Priority: 700,
		OnDisconnect: cluster.DisconnectKeep, Demand: cluster.Demand{CPU: 100, Memory: cluster.MiB, Disk: cluster.GiB},
		Placement: cluster.Placement{
			AntiAffinity: cluster.AntiAffinityPrefer, Constraints: []cluster.Constraint{common, own},
		},
		Ports: []cluster.Port{{Name: "http"}}, Images: []string{"docker.io/library/main:1"}, NeedsImage: true,
		Since: updated,
	}}
	if diff := cmp.Diff(want, d.Pending); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMissingDefinitionIsReported(t *testing.T) {
	s := &cluster.Service{
		Name: "web", Definition: cluster.Ref{Name: "web", Version: 1}, Count: 1,
		Lifespan: cluster.Lifespan{Generation: 1},
	}
	s.SetDefaults()
	d := reconciler.Service(reconciler.ServiceInput{Spec: s})
	if len(d.Pending) != 0 || d.Message != "task definition web@1 does not exist" {
		t.Errorf("message %q: %s", d.Message, describe(d))
	}
}

// A job that runs again under another generation waits for the end of the earlier run.
func TestJobRunsAgainAfterItsEarlierRunEnded(t *testing.T) {
	w, r := job(t, cluster.StateRunning, nil)
	again := *w.job
	again.Generation = 2
	w.job = &again
	d := w.decide(w.tasks())
	if len(d.Pending) != 1 || d.Pending[0].Hold.Reason != cluster.ReasonOldAttempt || len(d.Stops) != 1 ||
		d.Stops[0].Desired.Stop.Class != cluster.StopMandatory {
		t.Fatalf("%s", describe(d))
	}
	w.commit(d)
	w.step(r)
	w.commit(w.decide(w.tasks()))
	d = w.decide(w.tasks())
	if len(d.Pending) != 1 || d.Pending[0].Hold != (cluster.Hold{}) || d.Pending[0].Attempt != 1 ||
		d.Pending[0].Task != "default.work.2.a.0" {
		t.Errorf("%s", describe(d))
	}
}

func TestServiceStates(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spec   func(*cluster.Service)
		tasks  []string // "index state health"
		absent watcher.Absence
		before bool // all tasks were healthy before
		want   cluster.ServiceState
	}{
		{name: "nothing yet", want: cluster.ServiceStarting},
		{name: "on its way", tasks: []string{"preparing", "running healthy"}, want: cluster.ServiceStarting},
		{name: "healthy", tasks: []string{"running healthy", "running healthy"}, want: cluster.ServiceHealthy},
		{name: "one fails", tasks: []string{"running failing", "running healthy"}, want: cluster.ServiceDegraded},
		{name: "all fail", tasks: []string{"running failing", "running failing"}, want: cluster.ServiceFailing},
		{
			name: "first checks fail", tasks: []string{"running warning", "running healthy"},
			want: cluster.ServiceStarting,
		},
		{
			name: "first checks of all fail", tasks: []string{"running warning", "running warning"},
			want: cluster.ServiceStarting,
		},
		{
			name: "checks begin to fail", tasks: []string{"running warning", "running healthy"}, before: true,
			want: cluster.ServiceDegraded,
		},
		{
			name: "checks of all begin to fail", tasks: []string{"running warning", "running warning"}, before: true,
			want: cluster.ServiceDegraded,
		},
		{
			name: "one begins to fail, one fails", tasks: []string{"running warning", "running failing"},
			want: cluster.ServiceFailing,
		},
		{
			name: "silent nodes", tasks: []string{"running healthy", "running healthy"}, absent: watcher.Suspected,
			want: cluster.ServiceFailing,
		},
		{name: "stopping", spec: func(s *cluster.Service) {
			s.Stopped = true
		}, tasks: []string{"running healthy"}, want: cluster.ServiceStopping},
		{name: "stopped", spec: func(s *cluster.Service) { s.Stopped = true }, want: cluster.ServiceStopped},
		{name: "count of none", spec: func(s *cluster.Service) { s.Count = 0 }, want: cluster.ServiceStopped},
		{name: "deleting", spec: func(s *cluster.Service) {
			s.Deleted = true
		}, tasks: []string{"running healthy"}, want: cluster.ServiceDeleting},
		{
			name: "rolling out", spec: func(s *cluster.Service) {
				s.Generation, s.Restarted = 2, 2
			}, tasks: []string{"running healthy", "running healthy"},
			want: cluster.ServiceRollingOut,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			s := &cluster.Service{
				Name: "web", Definition: w.define("web@1", nil), Count: 2,
				Lifespan: cluster.Lifespan{Generation: 1},
			}
			s.SetDefaults()
			w.service, w.owner = s, s.Owner()
			play := stage{T: t, world: w}
			for i, state := range tt.tasks {
				play.do(append([]string{"task", fmt.Sprintf("web.1.%d", i), "a1", "on", "n1", "def=web@1"},
					strings.Fields(state)...))
			}
			w.absent["n1"] = tt.absent
			if tt.spec != nil {
				tt.spec(s)
			}
			rollout := &cluster.Rollout{
				Version: cluster.Version{Generation: 1, Definition: s.Definition, State: cluster.RolloutRolling},
			}
			if tt.before {
				rollout.State = cluster.RolloutComplete
			}
			st := reconciler.StatusOfService(reconciler.ServiceInput{Spec: s, Tasks: w.tasks(), Rollout: rollout})
			if st.State != tt.want {
				t.Errorf("state %q, want %q: %+v", st.State, tt.want, st)
			}
			quiet := []cluster.ServiceState{cluster.ServiceHealthy, cluster.ServiceStopped}
			if (st.Message == "") != slices.Contains(quiet, st.State) {
				t.Errorf("message %q in state %s", st.Message, st.State)
			}
		})
	}
}

// TestMessagesNameTheCause: a status that is not as desired names the cause, also in JSON.
func TestMessagesNameTheCause(t *testing.T) {
	seen := func(task cluster.TaskID, state cluster.State, restarts int, message string) reconciler.Task {
		return reconciler.Task{Attempt: cluster.Attempt{
			Desired: &cluster.Desired{Task: task, Attempt: 1, UUID: "u", Node: "n1"},
			Observed: &cluster.Observed{
				Task: task, Attempt: 1, UUID: "u", Node: "n1", State: state, Restarts: restarts,
				Message: message,
			},
		}}
	}
	web := &cluster.Service{Cluster: "c", Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 1}}
	sum := &cluster.Job{
		Cluster: "c", Name: "sum", Steps: []cluster.Step{{Name: "a", Count: 1}},
		Lifespan: cluster.Lifespan{Generation: 1},
	}
	failing := func(message string) string {
		task := seen("c.web.1.0", cluster.StateRunning, 0, message)
		task.Observed.Health = cluster.HealthFailing
		return reconciler.StatusOfService(reconciler.ServiceInput{Spec: web, Tasks: []reconciler.Task{task}}).Message
	}
	for _, tt := range []struct{ name, got, want string }{
		{
			"once", reconciler.StatusOfService(reconciler.ServiceInput{Spec: web, Tasks: []reconciler.Task{
				seen("c.web.1.0", cluster.StateStarting, 1, "exit code 1 (1 restart, next in 1s)"),
			}}).Message,
			"0/1 healthy; c.web.1.0: exit code 1 (1 restart, next in 1s)",
		},
		{
			"twice", reconciler.StatusOfService(reconciler.ServiceInput{Spec: web, Tasks: []reconciler.Task{
				seen("c.web.1.0", cluster.StateStarting, 2, ""),
			}}).Message,
			"0/1 healthy; c.web.1.0 restarted 2 times",
		},
		{
			"crash-looping, as its agent counts", reconciler.StatusOfService(reconciler.ServiceInput{
				Spec: web, Tasks: []reconciler.Task{
					seen("c.web.1.0", cluster.StateStarting, 4, "container main exited with code 17 (4 restarts, next in 8s)"),
				},
			}).Message,
			"0/1 healthy; c.web.1.0 is crash-looping on n1: container main exited with code 17 (4 restarts, next in 8s)",
		},
		{
			"the first answer of a check", failing("answered 500"), "0/1 healthy; c.web.1.0 fails its checks on n1: answered 500",
		},
		{
			"the next answer of a check", failing("answered 503"), "0/1 healthy; c.web.1.0 fails its checks on n1: answered 503",
		},
		{
			"a job that is held up", reconciler.StatusOfJob(reconciler.JobInput{Spec: sum, Tasks: []reconciler.Task{
				seen("c.sum.1.a.0", cluster.StatePreparing, 0, "the image is being fetched"),
			}}).Message,
			"0/1 succeeded; c.sum.1.a.0: the image is being fetched",
		},
		{
			"a job that comes along", reconciler.StatusOfJob(reconciler.JobInput{Spec: sum, Tasks: []reconciler.Task{
				seen("c.sum.1.a.0", cluster.StateRunning, 0, ""),
			}}).Message,
			"0/1 succeeded",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}

func BenchmarkServiceAtRest(b *testing.B) {
	w := newWorld()
	const n = 1000
	s := &cluster.Service{
		Name: "web", Definition: w.define("web@1", nil), Count: n,
		Lifespan: cluster.Lifespan{Generation: 1},
	}
	s.SetDefaults()
	w.service, w.owner = s, s.Owner()
	if err := w.placeAll(w.decide(nil)); err != nil {
		b.Fatal(err)
	}
	for _, r := range w.records {
		for range 4 {
			w.step(r)
		}
	}
	w.commit(w.decide(w.tasks())) // its first deployment is complete
	tasks := w.tasks()
	b.ReportAllocs()
	for b.Loop() {
		if d := w.decide(tasks); !d.Empty() {
			b.Fatal(describe(d))
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// A step of many tasks is few requests: those before, between and behind the tasks with attempts, and those beyond the
// parallelism.
func TestLargeStepsAreFewRequests(t *testing.T) {
	w := newWorld()
	job := &cluster.Job{
		Cluster: "c", Name: "work", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{
			Name: "a", Definition: w.define("w@1", nil), Count: cluster.MaxJobTasks, Parallelism: 600,
		}},
	}
	job.SetDefaults()
	w.job, w.owner = job, job.Owner()
	requests := func(tasks ...int) []reconciler.Task {
		var all []reconciler.Task
		for _, index := range tasks {
			id := cluster.JobTask("c", "work", 1, "a", index)
			all = append(all, reconciler.Task{Attempt: cluster.Attempt{DesiredRev: 7, Desired: &cluster.Desired{
				Task: id, Attempt: 1, UUID: string(id), Node: "n1", Owner: w.owner,
			}}})
		}
		return all
	}
	find := func(r cluster.Ref) *cluster.TaskDefinition { return w.definitions[r] }
	d := reconciler.Job(reconciler.JobInput{
		Owner: w.owner, Spec: job, Definitions: find, Tasks: requests(0, 1, 500, cluster.MaxJobTasks-1), Now: w.now,
	})
	var got []cluster.TaskRange
	for i := range d.Pending {
		got = append(got, d.Pending[i].Range())
		if held := d.Pending[i].Hold.Reason == cluster.ReasonParallelism; held != (i == 2) {
			t.Errorf("%v is held for %q", got[i], d.Pending[i].Hold.Reason)
		}
	}
	want := []cluster.TaskRange{
		{First: "c.work.1.a.2", Further: 497},
		{First: "c.work.1.a.501", Further: 97},
		{First: "c.work.1.a.599", Further: cluster.MaxJobTasks - 601},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkLargeJob decides about a job with the most tasks, of which some run.
func BenchmarkLargeJob(b *testing.B) {
	w := newWorld()
	job := &cluster.Job{
		Cluster: "c", Name: "work", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{Name: "a", Definition: w.define("w@1", nil), Count: cluster.MaxJobTasks}},
	}
	job.SetDefaults()
	find := func(r cluster.Ref) *cluster.TaskDefinition { return w.definitions[r] }
	in := reconciler.JobInput{Owner: job.Owner(), Spec: job, Definitions: find, Now: w.now}
	for i := range 100 {
		id := cluster.JobTask("c", "work", 1, "a", i)
		in.Tasks = append(in.Tasks, reconciler.Task{Attempt: cluster.Attempt{DesiredRev: 7, Desired: &cluster.Desired{
			Task: id, Attempt: 1, UUID: string(id), Node: "n1", Owner: in.Owner,
		}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if d := reconciler.Job(in); len(d.Pending) != 1 {
			b.Fatalf("%d requests", len(d.Pending))
		}
	}
}

// BenchmarkManySteps decides for a job of 10,000 steps of one task each, all of which wait.
func BenchmarkManySteps(b *testing.B) {
	w := newWorld()
	job := &cluster.Job{Cluster: "c", Name: "work", Lifespan: cluster.Lifespan{Generation: 1}}
	definition := w.define("w@1", nil)
	for i := range 10_000 {
		job.Steps = append(job.Steps, cluster.Step{Name: fmt.Sprint("s", i), Definition: definition, Count: 1})
	}
	job.SetDefaults()
	find := func(r cluster.Ref) *cluster.TaskDefinition { return w.definitions[r] }
	in := reconciler.JobInput{Owner: job.Owner(), Spec: job, Definitions: find, Now: w.now}
	b.ReportAllocs()
	for b.Loop() {
		if d := reconciler.Job(in); len(d.Pending) != len(job.Steps) {
			b.Fatalf("%d requests", len(d.Pending))
		}
	}
}
