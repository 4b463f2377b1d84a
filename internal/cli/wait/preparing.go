package wait

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// Bounds of what is shown of tasks that are being prepared: how often it is asked for, how many tasks are read, and how
// many nodes named.
const (
	preparingEvery = 2 * time.Second
	preparingRead  = 100
	preparingNodes = 3
)

// lookAtPreparing adds to the target's line what its tasks that are being prepared do on their nodes: how far a pull
// is, and what it waits for. It is there for people, so a server that does not answer is no fault.
func (t *Target) lookAtPreparing(ctx context.Context, c *client.Client, now time.Time) {
	t.Line = strings.TrimSuffix(t.Line, t.added) // where it was not made anew
	t.added = ""
	if t.done {
		return
	}
	if now.Sub(t.preparedAt) >= preparingEvery {
		t.preparedAt = now
		f := client.TaskFilter{Cluster: t.Name.Cluster, Service: t.Name.Name, State: string(cluster.StatePreparing)}
		if t.Name.Kind == wording.KindJob {
			f.Service, f.Job = "", t.Name.Name
		}
		page, err := c.Tasks(ctx, f, client.ListOptions{Limit: preparingRead})
		if err != nil {
			return
		}
		t.preparing = preparing(page.Items)
	}
	if t.preparing != "" {
		t.added = "  " + t.preparing
		t.Line += t.added
	}
}

// preparing returns in one line what tasks that are being prepared do, by their nodes.
func preparing(tasks []api.TaskView) string {
	by := map[string]string{}
	for i := range tasks {
		if v := &tasks[i]; v.Message != "" && v.Node != "" {
			_, what, found := strings.Cut(v.Message, ": ") // "container app: pulling …"
			if !found || !strings.HasPrefix(v.Message, "container ") {
				what = v.Message
			}
			by[v.Node] = wording.OneLine(what)
		}
	}
	nodes := make([]string, 0, len(by))
	for node := range by { // order-free: sorted below
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	var b strings.Builder
	for i, node := range nodes {
		switch {
		case i == preparingNodes:
			fmt.Fprintf(&b, "; %s more", wording.Count(len(nodes)-i, "node"))
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(node + ": " + by[node])
	}
	return b.String()
}
