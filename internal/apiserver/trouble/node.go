package trouble

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// How long a node may take before it is a trouble: to be ready after its registration, and to be empty after the drain
// began.
const (
	maxJoinTime  = time.Minute
	maxDrainTime = 10 * time.Minute
)

// nodeTroubles returns the troubles of nodes: slow changes and lost devices, silence, shortage of memory, full disks.
func nodeTroubles(o *Objects) (found []api.Trouble) {
	for i := range o.Nodes {
		found = append(found, lostDevices(&o.Nodes[i])...)
		if t := slowChange(&o.Nodes[i], o.Now); t != nil {
			found = append(found, *t)
		}
	}
	for _, find := range []func(*api.NodeView) *api.Trouble{silence, memoryPressure, fullDisk} {
		for i := range o.Nodes {
			if t := find(&o.Nodes[i]); t != nil {
				found = append(found, *t)
			}
		}
	}
	return found
}

// nodeTrouble returns a trouble of a node whose next step is to inspect the node.
func nodeTrouble(n *api.NodeView, state, cause string) *api.Trouble {
	return &api.Trouble{
		Object: wording.KindNode + "/" + n.Name, State: state, Cause: wording.OneLine(cause),
		Next: "berth node status " + n.Name,
	}
}

func lostDevices(n *api.NodeView) (found []api.Trouble) {
	for _, d := range n.LostDevices {
		task := string(d.Task)
		t := nodeTrouble(n, api.TroubleLostDevice,
			fmt.Sprintf("device %s is gone, held by %s", d.ID, cmp.Or(task, "a task")))
		if task != "" {
			t.Next = "berth explain " + task
		}
		found = append(found, *t)
	}
	return found
}

// slowChange returns the trouble of a node that joins or drains for too long, or nil.
func slowChange(n *api.NodeView, now time.Time) *api.Trouble {
	switch {
	case n.State == cluster.NodeJoining && !n.Since.IsZero() && now.Sub(n.Since) > maxJoinTime:
		cause := n.Reason
		if cause == "" {
			cause = "its agent has not reported its tasks yet"
		}
		return nodeTrouble(n, string(n.State), cause)
	case n.State == cluster.NodeDraining && n.Drain != nil && len(n.Drain.Left) > 0 && !n.Drain.Since.IsZero() &&
		now.Sub(n.Drain.Since) > maxDrainTime:
		left := n.Drain.Left[0]
		task := string(left.ID)
		t := nodeTrouble(n, api.TroubleDrainHeld, fmt.Sprintf("draining for %s, %s left: %s",
			wording.Span(now.Sub(n.Drain.Since)), wording.Count(len(n.Drain.Left), "task"),
			wording.JoinNonEmpty(": ", task, left.Why)))
		t.Next = "berth explain " + task
		return t
	}
	return nil
}

func silence(n *api.NodeView) *api.Trouble {
	if n.State != cluster.NodeDown && n.State != cluster.NodeSuspect {
		return nil
	}
	return nodeTrouble(n, string(n.State), n.Reason)
}

func memoryPressure(n *api.NodeView) *api.Trouble {
	if n.Used == nil || n.Used.Pressure == nil {
		return nil
	}
	return nodeTrouble(n, api.TroublePressure, wording.Pressure(n.Used.Pressure))
}

func fullDisk(n *api.NodeView) *api.Trouble {
	if n.Used == nil || n.Used.DiskFull == nil {
		return nil
	}
	t := nodeTrouble(n, api.TroubleDiskFull, n.Used.DiskFull.Message)
	t.Next = "berth image ls --node " + n.Name
	return t
}
