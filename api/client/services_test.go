package client_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// TestServicesAndCronsAgainstServer checks that the server understands the calls about rollouts, scaling, crons and
// explanations.
func TestServicesAndCronsAgainstServer(t *testing.T) {
	ctx := t.Context()
	c, engine := newServer(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, status int, what string) {
		t.Helper()
		if client.StatusOf(err) != status {
			t.Errorf("%s: got %v, want %d", what, err, status)
		}
	}
	none := client.Condition{}
	for n := range 2 {
		_, err := c.PutDefinition(ctx, api.TaskDefinition{Name: "web", Version: n + 1, Containers: []cluster.Container{{
			Name: "app", Image: "web:1", Command: []string{"web", string(rune('a' + n))},
			Resources: cluster.Resources{CPU: 100},
		}}})
		must(err)
	}
	svc := api.Service{
		Name: "web", Definition: cluster.Ref{Name: "web", Version: 1}, Count: 2,
		Scaling: &cluster.Scaling{
			Min: 1, Max: 4, Targets: []cluster.ScaleTarget{{Metric: cluster.ScaleCPU, Target: 50}},
		},
	}
	_, err := c.PutService(ctx, svc, none)
	must(err)
	svc.Definition.Version = 2
	_, err = c.PutService(ctx, svc, none)
	must(err)
	record, err := store.Encode(cluster.Rollout{
		Version: cluster.Version{
			Generation: 2, Definition: svc.Definition, State: cluster.RolloutCanary,
			Started: time.Now(),
		},
		History: []cluster.Version{
			{Generation: 1, Definition: cluster.Ref{Name: "web", Version: 1}, State: cluster.RolloutComplete},
		},
	})
	must(err)
	_, err = engine.Commit(ctx,
		[]store.Group{{Ops: []store.Op{
			{Key: store.Prefix(store.DefaultPrefix).Rollout("default", "web"), Value: record},
		}}})
	must(err)
	c = c.Consistent() // the tables follow what was written past the server

	v, err := c.Rollout(ctx, "default", "web")
	must(err)
	if v.State != cluster.RolloutCanary || v.Generation != 2 || v.Revision == 0 {
		t.Errorf("rollout: got %+v", v)
	}
	if v, err = c.PauseRollout(ctx, "default", "web", client.Condition{Revision: v.Revision}); err != nil || !v.Paused {
		t.Errorf("paused: got %+v, %v", v, err)
	}
	_, err = c.PauseRollout(ctx, "default", "web", client.Condition{Revision: 1})
	refused(err, http.StatusPreconditionFailed, "a stale pause")
	_, err = c.ResumeRollout(ctx, "default", "web", none)
	must(err)
	_, err = c.PromoteRollout(ctx, "default", "web", api.PromoteRequest{Generation: 2}, none)
	must(err)
	h, err := c.RolloutHistory(ctx, "default", "web")
	must(err)
	if len(h.Versions) != 2 || len(h.Versions[0].Fields) != 1 {
		t.Errorf("history: got %+v", h)
	}
	if v, err = c.UndoRollout(ctx, "default", "web", api.UndoRequest{}, none); err != nil ||
		v.Definition.Version != 1 || v.Generation != 3 {
		t.Errorf("undone: got %+v, %v", v, err)
	}
	_, err = c.UndoRollout(ctx, "default", "web", api.UndoRequest{Generation: 9}, none)
	refused(err, http.StatusConflict, "an undo to what is not known")

	must(c.SetScale(ctx, "default", "web", api.ScaleRequest{Count: new(6), Max: new(8)}, none))
	refused(c.SetScale(ctx, "default", "web", api.ScaleRequest{Count: new(9)}, none), http.StatusUnprocessableEntity,
		"a count beyond the bounds")
	must(c.SuspendScaling(ctx, "default", "web", none))
	s, err := c.Scale(ctx, "default", "web")
	must(err)
	if s.Count != 6 || *s.Max != 8 || !s.Suspended {
		t.Errorf("scale: got %+v", s)
	}
	must(c.ResumeScaling(ctx, "default", "web", none))

	cron := api.Cron{
		Name: "backup", Schedules: []string{"@daily"},
		Job: cluster.CronJob{Steps: []cluster.Step{{Name: "all", Definition: cluster.Ref{Name: "web"}}}},
	}
	rev, err := c.PutCron(ctx, cron, client.Condition{Absent: true})
	must(err)
	got, err := c.Cron(ctx, "default", "backup")
	must(err)
	if got.Revision != rev || len(got.Status.Next) == 0 {
		t.Errorf("cron: got %+v at %d", got, rev)
	}
	job, err := c.RunCron(ctx, "default", "backup")
	must(err)
	if job.Cron != "backup" || job.Status.Total != 1 {
		t.Errorf("job: got %+v", job)
	}
	must(c.SuspendCron(ctx, "default", "backup", none))
	must(c.ResumeCron(ctx, "default", "backup", none))
	page, err := c.Crons(ctx, "", client.ListOptions{})
	must(err)
	if len(page.Items) != 1 || len(page.Items[0].Status.Running) != 1 {
		t.Errorf("crons: got %+v", page.Items)
	}
	must(c.DeleteCron(ctx, "default", "backup", none))

	x, err := c.ExplainService(ctx, "default", "web")
	must(err)
	if x.Owner.Name != "web" || x.Summary == "" {
		t.Errorf("why the service: got %+v", x)
	}
	x, err = c.ExplainJob(ctx, "default", job.Name)
	must(err)
	if x.Owner.Kind != cluster.KindJob {
		t.Errorf("why the job: got %+v", x)
	}
	x, err = c.ExplainTask(ctx, "default.web.3.0")
	must(err)
	if x.Task != "default.web.3.0" || x.State != string(cluster.StatePending) {
		t.Errorf("why the task: got %+v", x)
	}
	_, err = c.ExplainTask(ctx, "default.web.9.0")
	refused(err, http.StatusNotFound, "why a task that is not there")
}
