package reconciler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// TestPredictedRequestEqualsTheRealOne: the predicted request of a running task equals its real request once the
// attempt is lost, except for the attempt's own node and the start of the wait.
func TestPredictedRequestEqualsTheRealOne(t *testing.T) {
	def := &cluster.TaskDefinition{
		Name: "web", Version: 1, Ports: []cluster.Port{{Name: "http", Port: 80}},
		Containers: []cluster.Container{
			{Name: "main", Image: "a/web:1", Resources: cluster.Resources{CPU: 500, Memory: cluster.GiB}},
		},
	}
	definitions := func(cluster.Ref) *cluster.TaskDefinition { return def }
	now := time.Unix(1e9, 0).UTC()
	constraints := []cluster.Constraint{{Attribute: "node.arch", Op: cluster.OpEqual, Value: "amd64"}}
	spec := &cluster.Service{
		Cluster: "c", Name: "web", Count: 1, Definition: def.Ref(), Priority: 700, OnDisconnect: cluster.DisconnectWait,
		Labels:    cluster.Labels{"a": "b"},
		Placement: cluster.Placement{Strategy: cluster.StrategySpread},
		Lifespan:  cluster.Lifespan{Generation: 1, Created: now},
	}
	job := &cluster.Job{
		Cluster: "c", Name: "sum", Priority: 300,
		Steps: []cluster.Step{{
			Name: "work", Definition: def.Ref(), Count: 1, Retries: 3,
			TimeLimit: cluster.Duration(time.Hour),
		}},
		Lifespan: cluster.Lifespan{Generation: 1, Created: now},
	}
	runningTask := func(id cluster.TaskID, o cluster.OwnerRef) reconciler.Task {
		return reconciler.Task{Attempt: cluster.Attempt{Desired: &cluster.Desired{
			Task: id, Attempt: 1, UUID: "u", Node: "n1", Owner: o, Definition: def.Ref(), Count: 1,
		}}}
	}
	ended := func(id cluster.TaskID, o cluster.OwnerRef) reconciler.Task {
		return reconciler.Task{Attempt: cluster.Attempt{Outcome: &cluster.Outcome{
			Task: id, Attempt: 1, UUID: "u", Node: "n1", Owner: o, Definition: def.Ref(), State: cluster.StateLost,
			Reason: cluster.ReasonNodeDown, Free: true, Ended: now,
		}}}
	}
	web, sum := cluster.ServiceTask("c", "web", 1, 0), cluster.JobTask("c", "sum", 1, "work", 0)
	service := reconciler.ServiceInput{
		Owner: spec.Owner(), Spec: spec, SpecRev: 4, Definitions: definitions,
		Cluster: &cluster.Cluster{Constraints: constraints}, Now: now,
	}
	batch := reconciler.JobInput{
		Owner: job.Owner(), Spec: job, SpecRev: 5, Definitions: definitions,
		Cluster: &cluster.Cluster{Constraints: constraints}, Now: now,
	}
	same := func(name string, again cluster.Pending, asked []cluster.Pending) {
		t.Helper()
		if len(asked) != 1 {
			t.Fatalf("%s: %d are pending, want 1", name, len(asked))
		}
		asked[0].Since, asked[0].ExcludedNodes = time.Time{}, []string{"n1"}
		if diff := cmp.Diff(asked[0], again); diff != "" {
			t.Errorf("%s (-pending +predicted):\n%s", name, diff)
		}
	}
	service.Tasks = []reconciler.Task{runningTask(web, spec.Owner())}
	again := reconciler.NextAttempts(service)[web]
	service.Tasks = []reconciler.Task{ended(web, spec.Owner())}
	same("service", again, reconciler.Service(service).Pending)
	batch.Tasks = []reconciler.Task{runningTask(sum, job.Owner())}
	again = reconciler.NextJobAttempts(batch)[sum]
	batch.Tasks = []reconciler.Task{ended(sum, job.Owner())}
	same("job", again, reconciler.Job(batch).Pending)
}
