package machine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// taskGate is the gate of upgrades: the tasks of a node that ran before its upgrade run on, as the same attempts, and
// those that were healthy are healthy. It is safe for concurrent use.
type taskGate struct {
	client *client.Client
	limit  time.Duration // until the tasks are as well as before
	settle time.Duration // that they stay so

	mu     sync.Mutex
	before map[string][]api.TaskView // by the node
}

// Begin is part of bootstrap.Gate.
func (g *taskGate) Begin(ctx context.Context, node string) (session uint64, err error) {
	n, err := g.client.Node(ctx, node)
	if err != nil {
		return 0, err
	}
	if n.State != cluster.NodeReady {
		return 0, fmt.Errorf("node %s is %s: only ready nodes are upgraded", node, n.State)
	}
	tasks, err := g.tasks(ctx, node)
	if err != nil {
		return 0, err
	}
	tasks = slices.DeleteFunc(tasks, func(t api.TaskView) bool { return t.State != cluster.StateRunning })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.before == nil {
		g.before = map[string][]api.TaskView{}
	}
	g.before[node] = tasks
	return n.Session, nil
}

func (g *taskGate) tasks(ctx context.Context, node string) ([]api.TaskView, error) {
	all, _, err := client.All(ctx, client.ListOptions{}, func(ctx context.Context, o client.ListOptions) (
		api.Page[api.TaskView], error,
	) {
		return g.client.Tasks(ctx, client.TaskFilter{Node: node}, o)
	})
	return all, err
}

// errUnwell is the cause of the end of the wait for the tasks.
var errUnwell = errors.New("the tasks of the node are not as well as before the upgrade")

// Pass is part of bootstrap.Gate.
func (g *taskGate) Pass(ctx context.Context, node string) error {
	g.mu.Lock()
	before := g.before[node]
	g.mu.Unlock()
	within, cancel := context.WithTimeoutCause(ctx, g.limit+g.settle, errUnwell)
	defer cancel()
	for {
		worse, err := g.await(within, node, before, true)
		if err != nil {
			return unwell(within, worse, err)
		}
		steady, end := context.WithTimeout(within, g.settle)
		worse, err = g.await(steady, node, before, false)
		settled := steady.Err() != nil && within.Err() == nil
		end()
		switch {
		case settled:
			return nil
		case err != nil:
			return unwell(within, worse, err)
		}
	}
}

// unwell returns the error of a wait that ended, with what was worse then.
func unwell(ctx context.Context, worse string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if worse == "" {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), worse)
}

// await looks at the tasks of a node after each change, until they are as well as before, or until they are not. It
// returns what was worse at last; "" if nothing was. An error means that neither happened.
func (g *taskGate) await(ctx context.Context, node string, before []api.TaskView, well bool) (worse string, err error) {
	for _, err := range g.client.TaskChanges(ctx, client.TaskFilter{Node: node}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return worse, err
		}
		now, err := g.compare(ctx, node, before)
		if err != nil {
			return worse, err
		}
		if worse = now; (worse == "") == well {
			return worse, nil
		}
	}
	return worse, context.Cause(ctx)
}

// compare returns what is worse than before on a node; "" if nothing is.
func (g *taskGate) compare(ctx context.Context, node string, before []api.TaskView) (string, error) {
	now, err := g.tasks(ctx, node)
	if err != nil {
		return "", err
	}
	var worse []string
	for _, was := range before {
		i := slices.IndexFunc(now, func(t api.TaskView) bool { return t.ID == was.ID })
		if i < 0 {
			t, err := g.client.Task(ctx, was.ID)
			if client.StatusOf(err) == http.StatusNotFound {
				continue // its owner has fewer tasks, or was deleted
			}
			if err != nil {
				return "", err
			}
			now, i = append(now, t), len(now)
		}
		if text := worseThan(was, now[i]); text != "" {
			worse = append(worse, text)
		}
	}
	const most = 3
	if rest := len(worse) - most; rest > 0 {
		worse = append(worse[:most], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(worse, "; "), nil
}

// worseThan compares a task with its state before. A task that its owner replaced or ended is not worse.
func worseThan(was, is api.TaskView) string {
	switch {
	case is.Generation != was.Generation || is.State == cluster.StateSucceeded || is.State == cluster.StateCancelled ||
		is.State == cluster.StateStopping:
		return ""
	case is.UUID == was.UUID && is.State == cluster.StateFailed && is.Owner.Batch():
		return "" // by its own code
	case is.UUID != was.UUID:
		return fmt.Sprintf("task %s was replaced: it is %s", was.ID, is.State)
	case is.State != cluster.StateRunning:
		return strings.TrimSuffix(fmt.Sprintf("task %s is %s: %s", was.ID, is.State, is.Message), ": ")
	case is.Restarts > was.Restarts:
		return fmt.Sprintf("task %s was restarted", was.ID)
	case was.Health == cluster.HealthHealthy && is.Health == cluster.HealthFailing:
		return strings.TrimSuffix(fmt.Sprintf("task %s is no longer healthy: %s", was.ID, is.Message), ": ")
	}
	return ""
}
