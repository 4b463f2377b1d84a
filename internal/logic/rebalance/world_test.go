package rebalance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// world is a fleet as plain lists, on which tests carry out moves.
type world struct {
	nodes []scheduler.Node
	tasks []rebalance.Task
	spare map[cluster.OwnerRef]int
}

// node adds a node with CPUs and GiB.
func (w *world) node(name string, cpus, gib int, labels ...string) *scheduler.Node {
	n := scheduler.Node{
		Name: name, State: cluster.NodeReady, Arch: "amd64", Executors: []string{"containerd", "process"},
		Labels: cluster.Labels{},
		Capacity: cluster.Demand{
			CPU: cluster.MilliCPU(1000 * cpus), Memory: cluster.Bytes(gib) * cluster.GiB,
			Disk: 100 * cluster.GiB,
		},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	w.nodes = append(w.nodes, n)
	return &w.nodes[len(w.nodes)-1]
}

// service adds tasks of a service, one for each named node; nodes may be repeated.
func (w *world) service(name string, p cluster.Placement, demand cluster.Demand, nodes ...string) []*rebalance.Task {
	if w.spare == nil {
		w.spare = map[cluster.OwnerRef]int{}
	}
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name}
	w.spare[owner] = 1
	first := len(w.tasks)
	for i, n := range nodes {
		id := cluster.ServiceTask("c", name, 1, i)
		w.tasks = append(w.tasks, rebalance.Task{
			Pending: cluster.Pending{
				Task: id, Attempt: 2, Owner: owner, Definition: cluster.Ref{Name: name, Version: 1}, Count: len(nodes),
				Priority:  500,
				Placement: p, Demand: demand, Labels: cluster.Labels{"app": name},
			},
			UUID: string(id) + "/1", Node: n,
		})
	}
	var added []*rebalance.Task
	for i := range w.tasks[first:] {
		added = append(added, &w.tasks[first+i])
	}
	return added
}

func (w *world) input() rebalance.Input {
	f := scheduler.NewFleet()
	for _, n := range w.nodes {
		f.SetNode(n)
	}
	for _, t := range w.tasks {
		f.Reserve(w.reservation(t))
	}
	return rebalance.Input{Fleet: f, Tasks: slices.Clone(w.tasks), Spare: w.spare}
}

func (w *world) reservation(t rebalance.Task) scheduler.Reservation {
	r := scheduler.Reservation{
		UUID: t.UUID, Task: t.Task, Definition: t.Definition, Node: t.Node, Demand: t.Demand, Labels: t.Labels,
		Priority: t.Priority,
	}
	for _, o := range t.Placement.Relations {
		if o.Away && o.Required {
			r.Away = append(r.Away, o)
		}
	}
	for _, p := range t.Ports {
		if p.Port != 0 {
			r.Ports = append(r.Ports, p.Port)
		}
	}
	return r
}

// clone returns an independent copy.
func (w *world) clone() *world {
	c := *w
	c.tasks = slices.Clone(w.tasks)
	return &c
}

func (w *world) at(name string) *scheduler.Node {
	for i := range w.nodes {
		if w.nodes[i].Name == name {
			return &w.nodes[i]
		}
	}
	return nil
}

// carry carries out a move as the control plane would, or returns what is wrong with it. The new attempt must have room
// beside everything there. The old attempt counts, too, unless it is stopped first. With rules the placement must allow
// the node.
func (w *world) carry(m rebalance.Move, rules bool) error {
	at := slices.IndexFunc(w.tasks, func(t rebalance.Task) bool { return t.UUID == m.UUID })
	if at < 0 {
		return fmt.Errorf("%s is not there", m.UUID)
	}
	t := &w.tasks[at]
	to := w.at(m.To)
	switch {
	case t.Node != m.From:
		return fmt.Errorf("it is on %s", t.Node)
	case t.StopFirst != m.StopFirst:
		return fmt.Errorf("stop first: %v", m.StopFirst)
	case m.From == m.To || to == nil:
		return fmt.Errorf("it goes to %s", m.To)
	case t.Unmovable != "":
		return fmt.Errorf("it must stay: %s", t.Unmovable)
	case w.spare[t.Owner] < 0 || t.StopFirst && w.spare[t.Owner] < 1:
		return fmt.Errorf("its owner has %d to spare", w.spare[t.Owner])
	}
	used := t.Demand
	for i := range w.tasks {
		o := &w.tasks[i]
		if i == at && t.StopFirst {
			continue
		}
		if o.Node != m.To {
			continue
		}
		used = used.Add(o.Demand)
		for _, p := range o.Ports {
			if p.Port != 0 && slices.ContainsFunc(t.Ports, func(q cluster.Port) bool { return q.Port == p.Port }) {
				return fmt.Errorf("port %d is taken", p.Port)
			}
		}
		if rules && o.Owner == t.Owner && t.Placement.AntiAffinity == cluster.AntiAffinityDemand {
			return fmt.Errorf("%s is there", o.Task)
		}
	}
	if used.CPU > to.Capacity.CPU || used.Memory > to.Capacity.Memory || used.Disk > to.Capacity.Disk {
		return fmt.Errorf("there is no room: %v of %v", used, to.Capacity)
	}
	if rules {
		if to.State != cluster.NodeReady || to.Cordon || !w.allowed(t, m.To) {
			return fmt.Errorf("the node does not take it")
		}
	}
	t.Node = m.To
	return nil
}

// allowed reports whether a node satisfies the task's constraints.
func (w *world) allowed(t *rebalance.Task, node string) bool {
	for _, c := range t.Placement.Constraints {
		if !scheduler.Matches(c, w.at(node)) {
			return false
		}
	}
	n := w.at(node)
	for _, taint := range n.Taints {
		if taint.Effect != cluster.TaintAvoid &&
			!slices.ContainsFunc(t.Placement.Tolerations, func(x cluster.Toleration) bool {
				return x.Tolerates(taint)
			}) {
			return false
		}
	}
	return t.Placement.Pool == "" || t.Placement.Pool == n.Pool
}

// all carries out all moves.
func (w *world) all(t *testing.T, moves []rebalance.Move) {
	t.Helper()
	for i, m := range moves {
		if err := w.carry(m, true); err != nil {
			t.Fatalf("move %d, %s from %s to %s: %v", i, m.Task, m.From, m.To, err)
		}
	}
}

// shown returns moves as lines.
func shown(moves []rebalance.Move) []string {
	var out []string
	for _, m := range moves {
		out = append(out, fmt.Sprintf("%s %s: %s → %s (%s)", m.Cause, m.Task, m.From, m.To, m.Message))
	}
	return out
}
