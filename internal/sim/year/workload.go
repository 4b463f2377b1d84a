package year

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/publishing"
	"github.com/berthd/berth/internal/store"
)

// newYear returns when the simulation begins.
func newYear() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// The clusters of the workload.
const (
	ciCluster  = "ci"
	webCluster = "web"
)

const (
	// largeInterval is the number of days between two jobs with a step whose outcomes are packed, and firstLarge the
	// day of the first one.
	largeInterval, firstLarge = 175, 10
	// tasksOfJob is the number of tasks of a job of the CI system.
	tasksOfJob = 21
	// clusterDays is the number of days after which the cluster of a day is deleted, if its jobs have expired.
	clusterDays = 9
	// keepDefinitions is how long the leader keeps versions of definitions that nothing names.
	keepDefinitions = 7 * 24 * time.Hour
	// nodes is the number of nodes at any time. One is replaced each day.
	nodes = 12
)

// Workload is the work of every day.
type Workload struct {
	// Tasks is the number of tasks of the CI system on a day, and Rounds the number of times at which it submits jobs.
	Tasks, Rounds int
	// Keep is how long its jobs are kept; 0 means as long as by default.
	Keep time.Duration
}

type object = map[string]any

// template returns a definition inside of another object. The variable makes its content new each day.
func template(build string) object {
	return object{"containers": []any{object{
		"name": "main", "image": "registry.example/build:1", "command": []string{"/bin/build", "--all"},
		"env": object{"BUILD": build}, "resources": object{"cpu": "100m", "memory": "64MiB"},
	}}}
}

// apply writes objects, each after its kind.
func (w *World) apply(ctx context.Context, objects ...any) error {
	var set []any
	for pair := range slices.Chunk(objects, 2) {
		set = append(set, object{"kind": pair[0], "spec": pair[len(pair)-1]})
	}
	return w.Call(ctx, http.MethodPost, "/v1/apply", object{"objects": set})
}

// Begin writes what is there on every day.
func (w *World) Begin(ctx context.Context) error {
	for i := range nodes {
		if err := w.agents.join(ctx, nodeName(i)); err != nil {
			return err
		}
	}
	if err := w.Pass(ctx, time.Minute); err != nil { // the leader learns of the nodes
		return err
	}
	return w.apply(ctx,
		cluster.KindCluster, object{"name": ciCluster},
		cluster.KindCluster, object{"name": webCluster},
		cluster.KindCron, object{
			"cluster": ciCluster, "name": "check", "schedules": []string{"30 */6 * * *"},
			"job": object{"steps": []any{object{"name": "check", "template": template("1")}}},
		},
	)
}

// FillEvents fills the event log as far as the leader lets it grow, with older copies of the batches that are there.
func (w *World) FillEvents(ctx context.Context) error {
	var groups []store.Group
	for snap := w.tables.Snapshot(); len(groups)+snap.EventCount() < publishing.KeptBatches; {
		for e := range snap.EventBatches() {
			batch := *e.Value
			batch.ID, batch.At = fmt.Sprintf("%032x", len(groups)), newYear()
			value, err := store.Encode(&batch)
			if err != nil {
				return err
			}
			groups = append(groups, store.Group{
				Ops: []store.Op{{Key: w.tables.Prefix().Event(batch.ID), Value: value}},
			})
		}
	}
	return w.agents.commit(ctx, groups)
}

func nodeName(i int) string { return fmt.Sprintf("n%04d", i) }

// Day passes the day of a number, from 0.
func (w *World) Day(ctx context.Context, day int, work Workload) error {
	if err := w.apply(ctx, cluster.KindCluster, object{
		"name": ciCluster, "quota": object{"jobs": 100_000},
		"keep_jobs": cmp.Or(cluster.Duration(work.Keep), cluster.DefaultKeepJobs),
	}); err != nil {
		return err
	}
	if err := w.beginDay(ctx, day); err != nil {
		return err
	}
	jobs := max(1, work.Tasks/work.Rounds/tasksOfJob)
	for round := range work.Rounds {
		nth := day*work.Rounds + round
		name := fmt.Sprintf("ci-%03d-%02d-", day, round)
		for i := range jobs {
			if err := w.submit(ctx, fmt.Sprint(name, i), work.Tasks/work.Rounds/jobs-1); err != nil {
				return err
			}
		}
		if err := w.Pass(ctx, 8*time.Minute); err != nil {
			return err
		}
		if err := w.actOn(ctx, name+"0", nth); err != nil {
			return err
		}
		if err := w.Pass(ctx, 24*time.Hour/time.Duration(work.Rounds)-8*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// submit submits a job of the CI system with definitions of its own.
func (w *World) submit(ctx context.Context, name string, tests int) error {
	return w.apply(ctx, cluster.KindJob, object{
		"cluster": ciCluster, "name": name, "key": name, "labels": object{"branch": name},
		"steps": []any{
			object{"name": "build", "template": template(name), "retries": 1, "idempotent": true},
			object{
				"name": "test", "needs": []string{"build"}, "count": max(1, tests),
				"template": template(name + "-test"), "retries": 1, "time_limit": "1h",
				"concurrency": object{"group": "tests", "limit": 100_000},
			},
		},
	})
}

// actOn acts as users do with a job.
func (w *World) actOn(ctx context.Context, name string, nth int) error {
	job := "/v1/clusters/" + ciCluster + "/jobs/" + name
	switch nth % 6 {
	case 0:
		return w.Call(ctx, http.MethodPost, job+"/restart", nil)
	case 1:
		err := w.Call(ctx, http.MethodPost, job+"/hold", nil)
		if err != nil && !errors.Is(err, errConflict) { // the job may have ended
			return err
		}
		return w.Call(ctx, http.MethodPost, job+"/release", nil)
	case 2:
		return w.Call(ctx, http.MethodPost, job+"/stop", nil)
	case 3:
		return w.Call(ctx, http.MethodPost, job+"/priority", object{"priority": 600})
	case 4:
		for _, path := range []string{job, "/v1/jobs", "/v1/tasks", "/v1/queue?cluster=" + ciCluster, "/v1/events"} {
			if err := w.Call(ctx, http.MethodGet, path, nil); err != nil {
				return err
			}
		}
		return nil
	}
	return w.Call(ctx, http.MethodDelete, job, nil)
}

// beginDay makes the changes of a new day.
func (w *World) beginDay(ctx context.Context, day int) error {
	review := fmt.Sprintf("review-%03d", day)
	version := cluster.Ref{Name: "api", Version: day + 1}
	written := template(fmt.Sprintf("%03d", day))
	written["name"], written["version"] = version.Name, version.Version
	tool := template(fmt.Sprintf("%03d", day))
	tool["name"], tool["version"] = fmt.Sprintf("tool-%03d", day), 1
	if err := w.apply(ctx,
		// The same job again, with another key.
		cluster.KindJob, object{
			"cluster": ciCluster, "name": "nightly", "key": fmt.Sprintf("%03d", day),
			"steps": []any{object{
				"name": "all", "template": template(fmt.Sprintf("%03d", day)), "count": 20, "parallelism": 5,
			}},
		},
		// A rollout of a service whose definition is inside of it, and of one whose versions a user writes.
		cluster.KindService, object{
			"cluster": webCluster, "name": "front", "count": 3, "template": template(fmt.Sprintf("%03d", day)),
		},
		cluster.KindTaskDefinition, written,
		cluster.KindService, object{"cluster": webCluster, "name": "api", "count": 2, "definition": version.String()},
		// A definition that nothing ever names.
		cluster.KindTaskDefinition, tool,
		// A cluster of a day, with a service and a cron.
		cluster.KindCluster, object{"name": review},
		cluster.KindService, object{"cluster": review, "name": "app", "template": template(review)},
		cluster.KindCron, object{
			"cluster": review, "name": "clean", "schedules": []string{"5 */6 * * *"},
			"job": object{"steps": []any{object{"name": "clean", "template": template(review)}}},
		},
		cluster.KindPool, object{"name": review},
	); err != nil {
		return err
	}
	if day%largeInterval == firstLarge {
		if err := w.apply(ctx, cluster.KindJob, object{
			"cluster": ciCluster, "name": fmt.Sprintf("large-%03d", day),
			"steps": []any{object{"name": "all", "template": template(review), "count": cluster.PackAbove + 1}},
		}); err != nil {
			return err
		}
	}
	if err := w.Call(ctx, http.MethodPost, "/v1/tokens", api.TokenRequest{
		Name: review, Role: cluster.RoleSubmitter, Life: cluster.Duration(time.Hour),
	}); err != nil {
		return err
	}
	if err := w.Call(ctx, http.MethodPut, "/v1/reservations/"+review, object{
		"name": review, "nodes": []string{nodeName(day + nodes - 1)}, "until": w.now().Add(3 * time.Hour),
		"clusters": []string{review},
	}); err != nil {
		return err
	}
	if err := w.replaceNode(ctx, day); err != nil {
		return err
	}
	if day > 0 {
		if err := w.emptyCluster(ctx, fmt.Sprintf("review-%03d", day-1)); err != nil {
			return err
		}
	}
	w.reviews = append(w.reviews, review)
	return w.deleteClusters(ctx)
}

// deleteClusters deletes the clusters of earlier days whose last jobs have expired.
func (w *World) deleteClusters(ctx context.Context) error {
	var left []string
	for i, name := range w.reviews {
		if i+clusterDays >= len(w.reviews) {
			left = append(left, name)
			continue
		}
		err := w.Call(ctx, http.MethodDelete, "/v1/clusters/"+name, nil)
		if errors.Is(err, errConflict) {
			left = append(left, name) // it still has jobs
		} else if err != nil {
			return err
		}
	}
	w.reviews = left
	return nil
}

// replaceNode has one node join, and another one leave forever.
func (w *World) replaceNode(ctx context.Context, day int) error {
	if err := w.agents.join(ctx, nodeName(day+nodes)); err != nil {
		return err
	}
	leaves := nodeName(day)
	w.tables.DropPulse(leaves)
	return w.Call(ctx, http.MethodPost, "/v1/nodes/"+leaves+"/forget", object{"force": true})
}

// emptyCluster deletes what users wrote in the cluster of a day. Its jobs expire by themselves.
func (w *World) emptyCluster(ctx context.Context, name string) error {
	for _, path := range []string{
		"/v1/clusters/" + name + "/services/app", "/v1/clusters/" + name + "/crons/clean", "/v1/pools/" + name,
	} {
		if err := w.Call(ctx, http.MethodDelete, path, nil); err != nil {
			return err
		}
	}
	return nil
}
