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

// Bounds of the progress text for preparing tasks: the interval between reads, the number of tasks read, and the number
// of nodes named.
const (
	preparingInterval = 2 * time.Second
	maxPreparingTasks = 100
	maxPreparingNodes = 3
)

// readPreparing appends the progress of preparing tasks to the target's line, such as image pulls. The text is
// optional, so errors are ignored.
func (t *Target) readPreparing(ctx context.Context, c *client.Client, now time.Time) {
	t.Line = strings.TrimSuffix(t.Line, t.preparing.suffix) // the line may be that of an earlier read
	t.preparing.suffix = ""
	if t.done {
		return
	}
	if now.Sub(t.preparing.readAt) >= preparingInterval {
		t.preparing.readAt = now
		f := client.TaskFilter{Cluster: t.Name.Cluster, Service: t.Name.Name, State: string(cluster.StatePreparing)}
		if t.Name.Kind == wording.KindJob {
			f.Service, f.Job = "", t.Name.Name
		}
		page, err := c.Tasks(ctx, f, client.ListOptions{Limit: maxPreparingTasks})
		if err != nil {
			return
		}
		t.preparing.text = preparingText(page.Items)
	}
	if t.preparing.text != "" {
		t.preparing.suffix = "  " + t.preparing.text
		t.Line += t.preparing.suffix
	}
}

// preparingText describes in one line what preparing tasks wait for, by node.
func preparingText(tasks []api.TaskView) string {
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
		case i == maxPreparingNodes:
			fmt.Fprintf(&b, "; %s more", wording.Count(len(nodes)-i, "node"))
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(node + ": " + by[node])
	}
	return b.String()
}
