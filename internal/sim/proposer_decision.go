package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

const (
	// refusalKept is how long a scheduler does not repeat a refused placement.
	refusalKept = 8 * time.Second
	// clearanceWait is how long a task fits nowhere until room is made for it, and between two such attempts.
	clearanceWait = 35 * time.Second
	// maxSenselessCommands is the largest number of commands in a senseless proposal.
	maxSenselessCommands = 6
)

// decide returns the commands that follow from the state. Tasks go to the fullest node that has room for them, by
// priority. If one fits nowhere for a while, others are moved off a node or evicted.
func (s *proposerState) decide(now time.Time) (commands []cluster.ProposalCommand) {
	maps.DeleteFunc(s.refused, func(_ [2]string, until time.Time) bool { return until.Before(now) })
	free := map[string]cluster.Room{}
	for name, n := range s.nodes { // order-free: a map is filled
		if n.Accepts {
			free[name] = n.Free
		}
	}
	waits := map[cluster.TaskID]time.Time{}
	for _, g := range s.byPriority() {
		for i := range g.Pending {
			w := &g.Pending[i]
			if w.Held != "" || w.OnlyNode != "" {
				continue
			}
			for k := range 1 + w.Further {
				task := w.Task.Offset(k)
				if node := s.fullestNode(free, g, w, task); node != "" {
					free[node] = free[node].Sub(g.Demand)
					commands = append(commands, cluster.ProposalCommand{
						Action: cluster.ProposePlace, Task: task, Node: node, Attempt: w.Attempt,
					})
					continue
				}
				waits[task] = now
				if since, known := s.waits[task]; known {
					waits[task] = since
				}
				commands = append(commands, cluster.ProposalCommand{
					Action: cluster.ProposeWait, Task: task, Reason: "no node has room for it",
				})
				if now.Sub(waits[task]) >= clearanceWait && now.Sub(s.cleared) >= clearanceWait {
					s.cleared = now
					commands = append(commands, s.makeRoom(free, g, w)...)
				}
			}
		}
	}
	s.waits = waits
	return commands
}

// byPriority returns the groups of the domain, the most urgent first.
func (s *proposerState) byPriority() []*cluster.SchedulingGroup {
	return slices.SortedFunc(maps.Values(s.groups), func(a, b *cluster.SchedulingGroup) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
}

// fullestNode returns the node with the least free room that has room for a task, "" if none has.
func (s *proposerState) fullestNode(free map[string]cluster.Room, g *cluster.SchedulingGroup,
	w *cluster.SchedulingPending, task cluster.TaskID,
) (best string) {
	for _, name := range slices.Sorted(maps.Keys(free)) {
		if free[name].Holds(g.Demand) && !slices.Contains(w.ExcludedNodes, name) &&
			s.refused[[2]string{string(task), name}].IsZero() && (best == "" || free[name].CPU < free[best].CPU) {
			best = name
		}
	}
	return best
}

// makeRoom returns commands that make room for a task on the node that has the most: tasks of services move to other
// nodes, and tasks of less urgent groups are evicted if there is no other node for them.
func (s *proposerState) makeRoom(free map[string]cluster.Room, g *cluster.SchedulingGroup,
	w *cluster.SchedulingPending,
) (commands []cluster.ProposalCommand) {
	target := ""
	for _, name := range slices.Sorted(maps.Keys(free)) {
		if s.nodes[name].Capacity.Holds(g.Demand) && !slices.Contains(w.ExcludedNodes, name) &&
			(target == "" || free[name].CPU > free[target].CPU) {
			target = name
		}
	}
	if target == "" {
		return nil
	}
	room := free[target]
	others := maps.Clone(free)
	delete(others, target)
	tasks := slices.Clone(s.nodes[target].Tasks)
	slices.SortStableFunc(tasks, func(a, b cluster.SchedulingTask) int {
		return cmp.Compare(b.Demand.CPU, a.Demand.CPU)
	})
	for _, t := range tasks {
		of := s.groups[t.Group]
		if room.Holds(g.Demand) {
			break
		}
		if t.Ended || t.Demand.CPU == 0 || of == nil {
			continue
		}
		c := cluster.ProposalCommand{Action: cluster.ProposeMove, Task: t.Task, UUID: t.UUID, Reason: "room for others"}
		moved := &cluster.SchedulingGroup{Demand: t.Demand}
		c.Node = s.fullestNode(others, moved, &cluster.SchedulingPending{}, t.Task)
		switch {
		case of.Owner.Kind == cluster.KindService && c.Node != "":
			others[c.Node] = others[c.Node].Sub(t.Demand)
		case of.Priority < g.Priority:
			c.Action, c.Node = cluster.ProposeEvict, ""
		default:
			continue
		}
		room = cluster.Room{
			CPU: room.CPU + t.Demand.CPU, Memory: room.Memory + t.Demand.Memory, Disk: room.Disk + t.Demand.Disk,
		}
		commands = append(commands, c)
	}
	return commands
}

// noteAnswer remembers which nodes refused a task.
func (s *proposerState) noteAnswer(p *cluster.Proposal, answer *cluster.ProposalAnswer, now time.Time) {
	for i := range answer.Results {
		if r := &answer.Results[i]; !r.Accepted && r.Code != cluster.ReasonStale {
			s.refused[[2]string{string(r.Task), p.Commands[i].Node}] = now.Add(refusalKept)
		}
	}
}

// pick returns one of several values, or the zero value of none.
func pick[T any](d *dice, all []T) (v T) {
	if len(all) > 0 {
		v = all[d.below(len(all))]
	}
	return v
}

// makeSenseless returns a proposal that follows from nothing: of any claim, any base, and of random commands.
func (p *proposer) makeSenseless(d *dice) cluster.Proposal {
	out := cluster.Proposal{DomainRevision: p.claimed, Base: p.state.base}
	switch d.below(6) {
	case 0:
		out.DomainRevision = pick(d, p.claims)
	case 1:
		out.DomainRevision += uint64(1 + d.below(3))
	}
	switch d.below(6) {
	case 0:
		out.Base = pick(d, p.bases)
	case 1:
		out.Base = pick(d, []string{"", "7-99999", "no revision"})
	}
	var pending, running []cluster.SchedulingTask
	for _, g := range p.state.byPriority() {
		for i := range g.Pending {
			pending = append(pending, cluster.SchedulingTask{Task: g.Pending[i].Task})
		}
	}
	names := slices.Sorted(maps.Keys(p.state.nodes))
	for _, name := range names {
		running = append(running, p.state.nodes[name].Tasks...)
	}
	seen := map[cluster.TaskID]bool{}
	for range d.below(maxSenselessCommands) {
		if c := senselessCommand(d, pending, running, append(names, "n77")); !seen[c.Task] {
			seen[c.Task] = true
			out.Commands = append(out.Commands, c)
		}
	}
	return out
}

// senselessCommand returns a well-formed command for a task and a node that nobody chose.
func senselessCommand(d *dice, pending, running []cluster.SchedulingTask, nodes []string) cluster.ProposalCommand {
	c := cluster.ProposalCommand{Reason: "nobody knows"}
	t := pick(d, pending)
	if d.below(2) == 0 || t.Task == "" {
		t = pick(d, running)
	}
	c.Task = t.Task
	if c.Task == "" || d.below(8) == 0 {
		c.Task = cluster.ServiceTask(inCluster, "web", uint64(1+d.below(4)), d.below(4))
	}
	c.Action = pick(d, cluster.ProposalAction("").Values())
	if c.Action == cluster.ProposePlace || c.Action == cluster.ProposeMove {
		c.Node = pick(d, nodes)
	}
	switch c.Action {
	case cluster.ProposePlace:
		c.Attempt = d.below(3)
	case cluster.ProposeMove, cluster.ProposeEvict:
		if c.UUID = t.UUID; c.UUID == "" || d.below(8) == 0 {
			c.UUID = "none"
		}
	case cluster.ProposeWait:
	}
	return c
}
