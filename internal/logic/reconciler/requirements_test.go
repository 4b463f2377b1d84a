package reconciler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// pendingRequirements is the part of a pending task that the scheduler checks besides its resources.
type pendingRequirements struct {
	Labels  cluster.Labels
	Devices []cluster.DeviceRequest
	Images  []string
	Gang    string
	Size    int
}

func requirementsOf(p cluster.Pending) pendingRequirements {
	return pendingRequirements{p.Labels, p.Devices, p.Images, p.Gang, p.GangSize}
}

// withDevices adds devices and several images to a definition.
func withDevices(d *cluster.TaskDefinition) {
	d.Containers = []cluster.Container{
		{Name: "warm", Image: "z:1", Init: true},
		{Name: "a", Image: "b:1", Resources: cluster.Resources{Devices: []cluster.DeviceRequest{{Count: 2}}}},
		{Name: "b", Image: "a:1", Resources: cluster.Resources{Devices: []cluster.DeviceRequest{{}, {Share: 500}}}},
		{Name: "c", Image: "b:1"},
	}
}

func TestPendingHasRequirements(t *testing.T) {
	devices := []cluster.DeviceRequest{{Type: "gpu", Count: 3}, {Type: "gpu", Count: 1, Share: 500}}
	w, _ := job(t, "", func(s *cluster.Step) { s.Count = 2 })
	w.job.Labels = cluster.Labels{"app": "train"}
	w.define("w@1", withDevices)
	want := pendingRequirements{
		Labels: w.job.Labels, Devices: devices,
		Images: []string{"docker.io/library/a:1", "docker.io/library/b:1", "docker.io/library/z:1"},
	}
	pending := w.decide(nil).Pending
	for _, p := range pending {
		if diff := cmp.Diff(want, requirementsOf(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p.Task, diff)
		}
	}
	if len(pending) != 2 {
		t.Errorf("%d tasks are pending", len(pending))
	}

	s := newWorld()
	s.define("w@1", withDevices)
	s.service = &cluster.Service{
		Name: "web", Definition: cluster.Ref{Name: "w", Version: 1}, Count: 1,
		Labels: cluster.Labels{"app": "web"}, Lifespan: cluster.Lifespan{Generation: 1},
	}
	s.service.SetDefaults()
	s.owner = s.service.Owner()
	if diff := cmp.Diff(pendingRequirements{
		Labels: cluster.Labels{"app": "web"}, Devices: devices,
		Images: want.Images,
	}, requirementsOf(s.decide(nil).Pending[0])); diff != "" {
		t.Errorf("a service (-want +got):\n%s", diff)
	}
}

// TestGangsAreRequestedTogether: the requested tasks of a gang carry the gang's size, also while one of them waits for
// its next try. Running and succeeded tasks are not counted.
func TestGangsAreRequestedTogether(t *testing.T) {
	w, _ := job(t, "", func(s *cluster.Step) { s.Count, s.Gang = 4, &cluster.Gang{} })
	const gang = "default/job/work.a.1"
	pending := w.decide(nil).Pending
	for _, p := range pending {
		if p.Gang != gang || p.GangSize != 4 {
			t.Errorf("%s belongs to the gang %q of %d", p.Task, p.Gang, p.GangSize)
		}
	}
	if len(pending) != 4 {
		t.Fatalf("%d tasks are pending", len(pending))
	}
	for _, p := range pending {
		if err := w.place(p, "n1"); err != nil {
			t.Fatal(err)
		}
	}
	// One task has succeeded, one runs, and two failed one after the other.
	end := func(i int, state cluster.State, at time.Time) {
		r := w.records[i]
		r.Outcome = &cluster.Outcome{
			Task: r.id, Attempt: 1, UUID: r.Desired.UUID, Node: "n1", State: state,
			Started: true, Ended: at,
		}
	}
	end(0, cluster.StateSucceeded, w.now)
	end(1, cluster.StateFailed, w.now)
	end(2, cluster.StateFailed, w.now.Add(-time.Hour))
	pending = w.decide(w.tasks()).Pending
	if len(pending) != 1 || pending[0].Task != w.records[2].id || pending[0].GangSize != 2 {
		t.Errorf("while one waits to be tried again: %+v", pending)
	}
	w.now = w.now.Add(time.Hour)
	pending = w.decide(w.tasks()).Pending
	if len(pending) != 2 || pending[0].GangSize != 2 || pending[1].GangSize != 2 {
		t.Errorf("once both may be tried again: %+v", pending)
	}
}

// TestAdoptedAttemptsKeepTheirDevices: the adopted record holds the devices that the agent reports for the attempt.
func TestAdoptedAttemptsKeepTheirDevices(t *testing.T) {
	w, r := job(t, cluster.StateRunning, nil)
	use := []cluster.DeviceUse{{ID: "GPU-1", Share: cluster.WholeDevice}}
	r.Observed.Definition, r.Observed.Devices = r.Desired.Definition, use
	r.Desired, r.DesiredRev = nil, 0
	d := w.decide(w.tasks())
	if len(d.Adoptions) != 1 || !cmp.Equal(d.Adoptions[0].Desired.Devices, use) {
		t.Errorf("%s", describe(d))
	}
	w.job.Cancelled = true
	d = w.decide(w.tasks())
	if len(d.Stops) != 1 || !cmp.Equal(d.Stops[0].Desired.Devices, use) {
		t.Errorf("stopped: %s", describe(d))
	}
}

// Tasks that follow services require nodes whose agents support it.
func TestPendingThatFollowsServices(t *testing.T) {
	w, _ := job(t, "", func(s *cluster.Step) { s.Count = 1 })
	w.define("w@1", func(d *cluster.TaskDefinition) {
		d.Containers = []cluster.Container{
			{Name: "a", Command: []string{"run"}, Services: []cluster.ServiceUse{{Service: "db"}}},
		}
	})
	want := []cluster.Constraint{{Attribute: "label.berth.services", Op: cluster.OpEqual, Value: "true"}}
	if diff := cmp.Diff(want, w.decide(nil).Pending[0].Placement.Constraints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.define("w@1", func(d *cluster.TaskDefinition) {
		d.Containers = []cluster.Container{{Name: "a", Command: []string{"run"}}}
	})
	if got := w.decide(nil).Pending[0].Placement.Constraints; got != nil {
		t.Errorf("without services it requires %v", got)
	}
}
