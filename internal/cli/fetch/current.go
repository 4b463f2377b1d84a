package fetch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// Limits of the failures that lists of tasks show.
const (
	// recentFailureAge is how long ago a shown failure happened at most.
	recentFailureAge = time.Hour
	// maxRecentFailures is how many failures of one owner are shown, the newest ones.
	maxRecentFailures = 10
)

// tasksPerPage is how many tasks are read at a time. A server computes all tasks of the owners that a page reaches, and
// a job may have a million: large pages cost it less.
const tasksPerPage = 10_000

// CurrentTasks collects the tasks that a list shows by default: tasks that have not ended, and recent failures. It
// keeps no others, so a list of many ended tasks needs little memory.
type CurrentTasks struct {
	// Now is the time of the list.
	Now time.Time
	// All shows all tasks.
	All bool
	// Selector selects the tasks of services and jobs by labels; see client.ListOptions. Others do not count.
	Selector string
	// Keep are conditions of the tasks of the list. Others are neither shown nor counted.
	Keep []func(api.TaskView) bool
	// Tasks are the shown tasks.
	Tasks []api.TaskView
	// Hidden is the number of ended tasks that are not shown.
	Hidden int
}

// Read reads the tasks that match a filter, page by page.
func (t *CurrentTasks) Read(ctx context.Context, c *client.Client, f client.TaskFilter) error {
	o := client.ListOptions{Limit: tasksPerPage, Selector: t.Selector}
	for {
		page, err := c.Tasks(ctx, f, o)
		if err != nil {
			return err
		}
		t.add(page.Items)
		if page.Next == "" {
			return nil
		}
		o.Cursor = page.Next
	}
}

// add adds a page of tasks.
func (t *CurrentTasks) add(page []api.TaskView) {
	for _, v := range page {
		switch {
		case slices.ContainsFunc(t.Keep, func(keep func(api.TaskView) bool) bool { return !keep(v) }):
		case t.All, !v.State.Terminal(), t.isRecentFailure(v):
			t.Tasks = append(t.Tasks, v)
		default:
			t.Hidden += 1 + v.Further
		}
	}
	if !t.All {
		t.limitFailures()
	}
}

func (t *CurrentTasks) isRecentFailure(v api.TaskView) bool {
	return taskview.Severity(v) == taskview.SeverityEnded && t.Now.Sub(taskview.Since(v)) <= recentFailureAge
}

// limitFailures hides all but the newest failures of each owner.
func (t *CurrentTasks) limitFailures() {
	failures := map[cluster.OwnerRef][]int{}
	for i, v := range t.Tasks {
		if v.State.Terminal() {
			failures[v.Owner] = append(failures[v.Owner], i)
		}
	}
	hidden := map[int]bool{}
	for _, indexes := range failures { // order-free: each owner is limited for itself
		if len(indexes) <= maxRecentFailures {
			continue
		}
		slices.SortStableFunc(indexes, func(x, y int) int {
			a, b := t.Tasks[x], t.Tasks[y]
			return cmp.Or(taskview.Since(b).Compare(taskview.Since(a)), cmp.Compare(a.ID, b.ID))
		})
		for _, i := range indexes[maxRecentFailures:] {
			hidden[i] = true
		}
	}
	if len(hidden) == 0 {
		return
	}
	t.Hidden += len(hidden)
	kept := t.Tasks[:0]
	for i, v := range t.Tasks {
		if !hidden[i] {
			kept = append(kept, v)
		}
	}
	t.Tasks = kept
}

// HiddenText says how many tasks are not shown and what shows them, or "".
func (t *CurrentTasks) HiddenText(way string) string {
	switch t.Hidden {
	case 0:
		return ""
	case 1:
		return "1 ended task is not shown; " + way + " shows it."
	}
	return fmt.Sprintf("%s are not shown; %s shows them.", wording.Count(t.Hidden, "ended task"), way)
}
