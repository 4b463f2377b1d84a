package advice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// The functions of this file make all changes, with their texts: requests without a full stop.

func released() cluster.Remedy {
	return cluster.Remedy{Kind: cluster.ChangeRelease, Text: "raise its priority from 0"}
}

// quotaRaised gives a cluster a larger quota.
func quotaRaised(name string, was, q *cluster.Quota) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeQuota, Cluster: name, Quota: q,
		Text: fmt.Sprintf("raise the quota of cluster %s to %s", name, raisedText(was, q)),
	}
}

// raisedText names the limits of a quota that are larger than before.
func raisedText(was, q *cluster.Quota) string {
	var parts []string
	add := func(raised bool, text string) {
		if raised {
			parts = append(parts, text)
		}
	}
	add(q.CPU > was.CPU, "cpu "+q.CPU.String())
	add(q.Memory > was.Memory, "memory "+roundedUp(q.Memory))
	add(q.Disk > was.Disk, "disk "+roundedUp(q.Disk))
	for _, kind := range slices.Sorted(maps.Keys(q.Devices)) {
		add(q.Devices[kind] > was.Devices[kind], fmt.Sprintf("%s %d", kind, q.Devices[kind]))
	}
	add(q.Tasks > was.Tasks, fmt.Sprintf("tasks %d", q.Tasks))
	add(q.Jobs > was.Jobs, fmt.Sprintf("jobs %d", q.Jobs))
	return strings.Join(parts, ", ")
}

// concurrencyRaised lets more tasks of a concurrency group run at a time.
func concurrencyRaised(group string, limit int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeConcurrency, Limit: limit,
		Text: fmt.Sprintf("raise its limit of concurrency group %s to %d", group, limit),
	}
}

// jobConcurrencyRaised lets more jobs of a concurrency group begin before others end.
func jobConcurrencyRaised(group string, limit int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeJobConcurrency, Limit: limit,
		Text: fmt.Sprintf("raise the job's limit of concurrency group %s to %d", group, limit),
	}
}

// limited ends a task of a job in time for the tasks ahead of it in the queue.
func limited(limit cluster.Duration) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeTimeLimit, TimeLimit: limit,
		Text: fmt.Sprintf("set its time_limit to %s, so that it ends before the room is needed", limit),
	}
}

// prioritized puts a task before those ahead of it in the queue.
func prioritized(was, priority int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangePriority, Priority: priority,
		Text: fmt.Sprintf("raise its priority from %d to %d, ahead of the tasks for which room is kept", was, priority),
	}
}

func waited(n *scheduler.Node) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeWait, Node: n.Name,
		Text: "wait until its earlier attempt has left " + n.Name,
	}
}

func uncordoned(n *scheduler.Node) cluster.Remedy {
	text := "uncordon " + n.Name
	if n.Drain || n.State != cluster.NodeReady {
		text = "end the drain of " + n.Name
	}
	return cluster.Remedy{Kind: cluster.ChangeUncordon, Node: n.Name, Text: text}
}

func revived(n *scheduler.Node) cluster.Remedy {
	text := fmt.Sprintf("bring back %s (%s)", n.Name, n.State)
	if n.State == cluster.NodeJoining {
		text = "wait until " + n.Name + " has joined"
	}
	return cluster.Remedy{Kind: cluster.ChangeRevive, Node: n.Name, Text: text}
}

func portOpened(port int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangePort, Port: port,
		Text: fmt.Sprintf("let Berth assign a port instead of %d", port),
	}
}

func freeing(node string, short cluster.Demand, ends []scheduler.Reservation) cluster.Remedy {
	c := cluster.Remedy{
		Kind: cluster.ChangeFree, Node: node, Demand: short, Attempts: uuids(ends),
		Text: "free " + roomText(short) + " on " + node,
	}
	for i := range ends {
		c.Tasks = append(c.Tasks, ends[i].Task)
	}
	const few = 3
	if len(ends) > 0 && len(ends) <= few {
		c.Text += ", such as by ending " + tasksText(c.Tasks)
	} else if len(ends) > few {
		c.Text += fmt.Sprintf(", such as by ending %d tasks", len(ends))
	}
	return c
}

func lowered(by, to cluster.Demand) cluster.Remedy {
	asked := by.Add(to)
	var left, now []string
	if by.CPU > 0 {
		left, now = append(left, cpuText(to.CPU)), append(now, cpuText(asked.CPU))
	}
	if by.Memory > 0 {
		left, now = append(left, roundedDown(to.Memory)+" memory"), append(now, asked.Memory.String())
	}
	if by.Disk > 0 {
		left, now = append(left, roundedDown(to.Disk)+" disk"), append(now, asked.Disk.String()+" disk")
	}
	return cluster.Remedy{
		Kind: cluster.ChangeLower, Demand: by,
		Text: fmt.Sprintf("lower its request to %s (it asks for %s)", andText(left), strings.Join(now, ", ")),
	}
}

// roundedDown returns a size as text that names no more than the size, so that a request of that size fits.
func roundedDown(b cluster.Bytes) string { return sizeText(b, false) }

// roundedUp returns a size as text that names no less than the size, so that room of that size suffices.
func roundedUp(b cluster.Bytes) string { return sizeText(b, true) }

// sizeText returns a size in tenths of its largest unit, as [cluster.Bytes.String] does, but rounded in one direction.
func sizeText(b cluster.Bytes, up bool) string {
	for _, unit := range []cluster.Bytes{cluster.TiB, cluster.GiB, cluster.MiB, cluster.KiB} {
		if b < unit {
			continue
		}
		rest := b % unit * 10
		tenths := b/unit*10 + rest/unit
		if up && rest%unit != 0 {
			tenths++
		}
		_, suffix, _ := strings.Cut(unit.String(), " ")
		return strconv.FormatFloat(float64(tenths)/10, 'f', -1, 64) + " " + suffix
	}
	return b.String()
}

func anyModel(r cluster.DeviceRequest, number int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeModel, Number: number,
		Text: fmt.Sprintf("accept a %s of any model instead of %s", deviceType(r), strings.Join(r.Models, " or ")),
	}
}

func fewerDevices(r cluster.DeviceRequest, number, count int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeDevices, Number: number, Limit: count,
		Text: fmt.Sprintf("request %d %s instead of %d", count, deviceType(r), max(r.Count, 1)),
	}
}

func deviceType(r cluster.DeviceRequest) string { return cmp.Or(r.Type, cluster.DefaultDeviceType) }

func loosened(was, now cluster.Constraint, number int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeLoosen, Number: number, Constraint: &now, Was: &was,
		Text: fmt.Sprintf("loosen the constraint %s to %s", scheduler.Text(was), scheduler.Text(now)),
	}
}

func dropped(c cluster.Constraint, number int) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeDrop, Number: number, Constraint: &c,
		Text: "drop the constraint " + scheduler.Text(c),
	}
}

func preferred(r cluster.Relation, h scheduler.Blocker) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeWish, Number: h.Number, Relation: &r,
		Text: fmt.Sprintf("make %q a preference instead of a requirement", h.Detail),
	}
}

func together() cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeApart,
		Text: "let its tasks share a node (anti_affinity: prefer)",
	}
}

func distinctRaised(attribute string, h scheduler.Blocker) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeDistinct, Number: h.Number, Limit: h.Least, Attribute: attribute,
		Text: fmt.Sprintf("allow %d of its tasks where %s (distinct.most: %d)", h.Least, h.Detail, h.Least),
	}
}

func skewRaised(attribute string, h scheduler.Blocker) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeSkew, Number: h.Number, Limit: h.Least, Attribute: attribute,
		Text: fmt.Sprintf("raise max_skew of the spread over %s to %d", attribute, h.Least),
	}
}

func tolerated(t cluster.Taint) cluster.Remedy {
	return cluster.Remedy{Kind: cluster.ChangeTolerate, Taint: &t, Text: "tolerate the taint " + t.String()}
}

func untainted(n *scheduler.Node, t cluster.Taint) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeUntaint, Node: n.Name, Taint: &t,
		Text: fmt.Sprintf("remove the taint %s from %s", t, n.Name),
	}
}

func ended(node string, ends []scheduler.Reservation) cluster.Remedy {
	c := cluster.Remedy{Kind: cluster.ChangeEnd, Node: node, Attempts: uuids(ends)}
	for i := range ends {
		c.Tasks = append(c.Tasks, ends[i].Task)
	}
	c.Text = "move or end " + tasksText(c.Tasks) + " on " + node
	return c
}

func poolDropped(p *cluster.Pending) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangePool, Pool: p.Placement.Pool,
		Text: "drop the pool " + p.Placement.Pool,
	}
}

func joined(n *scheduler.Node, pool string) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeJoin, Node: n.Name, Pool: pool,
		Text: fmt.Sprintf("move %s into the pool %s", n.Name, pool),
	}
}

// unreserved releases a reservation, on all of its nodes.
func unreserved(name string) cluster.Remedy {
	return cluster.Remedy{Kind: cluster.ChangeUnreserve, Reservation: name, Text: "release the reservation " + name}
}

func reservationDropped(p *cluster.Pending) cluster.Remedy {
	return cluster.Remedy{
		Kind: cluster.ChangeUnasked, Reservation: p.Placement.Reservation,
		Text: "drop the reservation " + p.Placement.Reservation,
	}
}

func withExecutor(p *cluster.Pending, n *scheduler.Node) cluster.Remedy {
	if p.Plain {
		return cluster.Remedy{
			Kind: cluster.ChangeExecutor, Node: n.Name, Executor: plainExecutor,
			Text: fmt.Sprintf("enable plain programs on %s (--executor auto), or give the containers an image",
				n.Name),
		}
	}
	return cluster.Remedy{
		Kind: cluster.ChangeExecutor, Node: n.Name, Executor: imageExecutor,
		Text: fmt.Sprintf("give %s the executor %s", n.Name, imageExecutor),
	}
}

// withNetwork lets a node offer a network. The text repeats what the node says it lacks.
func withNetwork(n *scheduler.Node, mode cluster.NetworkMode) cluster.Remedy {
	text := fmt.Sprintf("give %s the network %s", n.Name, mode)
	if why, found := strings.CutPrefix(cluster.LacksNetwork(n.Networks, mode), "network "+string(mode)+": "); found {
		text += " (" + why + ")"
	}
	return cluster.Remedy{Kind: cluster.ChangeNetwork, Node: n.Name, Network: mode, Text: text}
}

// added adds nodes. The text names all that the machine has and, of what tasks usually find, what no node offers.
func (s *search) added(m *cluster.Machine, count int) cluster.Remedy {
	text := "add a node"
	if count > 1 {
		text = fmt.Sprintf("add %d nodes, each", count)
	}
	if m.Name != "" {
		text += " called " + m.Name
	}
	if what := s.machineText(m); what != "" {
		text += " with " + what
	}
	return cluster.Remedy{Kind: cluster.ChangeAdd, Machine: m, Count: count, Text: text}
}

// merged returns changes with several of one thing as one: nodes to add are counted, and what is lowered or freed on
// one node is added up. asked is the demand of a task without changes.
func (s *search) merged(changes []cluster.Remedy, asked cluster.Demand) (all []cluster.Remedy) {
	for _, c := range changes {
		i := slices.IndexFunc(all, func(other cluster.Remedy) bool {
			switch c.Kind {
			case cluster.ChangeAdd:
				return other.Kind == c.Kind && c.Machine.Name == "" &&
					s.machineText(other.Machine) == s.machineText(c.Machine)
			case cluster.ChangeFree:
				return other.Kind == c.Kind && other.Node == c.Node
			default:
				return other.Kind == c.Kind && c.Kind == cluster.ChangeLower
			}
		})
		if i < 0 {
			all = append(all, c)
			continue
		}
		switch c.Kind {
		case cluster.ChangeAdd:
			all[i] = s.added(c.Machine, max(all[i].Count, 1)+max(c.Count, 1))
		case cluster.ChangeFree:
			all[i] = freedTogether(all[i], c)
		default:
			by := all[i].Demand.Add(c.Demand)
			all[i] = lowered(by, asked.Sub(by))
		}
	}
	return all
}

// freedTogether returns the change that frees on a node what two changes free.
func freedTogether(a, b cluster.Remedy) cluster.Remedy {
	var ends []scheduler.Reservation
	for _, c := range []cluster.Remedy{a, b} {
		for i, uuid := range c.Attempts {
			if !slices.ContainsFunc(ends, func(r scheduler.Reservation) bool { return r.UUID == uuid }) {
				ends = append(ends, scheduler.Reservation{UUID: uuid, Task: c.Tasks[i]})
			}
		}
	}
	return freeing(a.Node, a.Demand.Add(b.Demand), ends)
}

func (s *search) machineText(m *cluster.Machine) string {
	var parts []string
	if m.Capacity != (cluster.Demand{}) {
		parts = append(parts, roomText(m.Capacity)+" free")
	}
	kinds := map[string]int{}
	for _, d := range m.Devices {
		kinds[strings.TrimSpace(d.Type+" "+d.Model)]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	for _, pair := range [][2]string{
		{"node.arch", m.Arch},
		{"node.os", m.OS},
		{"node.kernel", m.Kernel},
		{"node.pool", m.Pool},
	} {
		if pair[1] != "" {
			parts = append(parts, pair[0]+" = "+pair[1])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		parts = append(parts, labelText(key, m.Labels[key]))
	}
	executors := slices.Clone(m.Executors)
	if s.offers.images {
		executors = slices.DeleteFunc(executors, func(e string) bool { return e == imageExecutor })
	}
	if len(executors) > 0 {
		parts = append(parts, "executor "+andText(executors))
	}
	if m.Network != "" && !s.offers.networks[m.Network] {
		parts = append(parts, "network "+string(m.Network))
	}
	return andText(parts)
}

// labelText returns a label of a node as text, in plain words for the labels that Berth itself sets.
func labelText(key, value string) string {
	switch key {
	case cluster.LabelSecrets:
		return "a memory folder for secrets"
	case cluster.LabelServices:
		return "addresses of services"
	case cluster.LabelArtifacts:
		return "artifacts"
	case cluster.LabelObjectStore:
		return "an object store (berth agent --object-store)"
	case cluster.LabelDiscovery:
		return "registration in Consul (berth agent --discovery)"
	case cluster.LabelIsolation:
		return "isolation"
	}
	return "label." + key + " = " + value
}

// roomText returns amounts of room that suffice as text: "2 CPU and 200 MiB memory".
func roomText(d cluster.Demand) string {
	var parts []string
	if d.CPU > 0 {
		parts = append(parts, cpuText(d.CPU))
	}
	if d.Memory > 0 {
		parts = append(parts, roundedUp(d.Memory)+" memory")
	}
	if d.Disk > 0 {
		parts = append(parts, roundedUp(d.Disk)+" disk")
	}
	return andText(parts)
}

// cpuText returns an amount of CPU as text: "2 CPU", "500m CPU".
func cpuText(m cluster.MilliCPU) string { return m.String() + " CPU" }

func tasksText(tasks []cluster.TaskID) string {
	const most = 4
	var names []string
	for _, id := range tasks[:min(len(tasks), most)] {
		names = append(names, string(id))
	}
	if more := len(tasks) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return andText(names)
}

func andText(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// suggestionOf returns the suggestion with its text.
func suggestionOf(f *found) cluster.Suggestion {
	sg := cluster.Suggestion{Changes: f.changes, Nodes: f.nodes}
	var parts []string
	times := map[string]int{}
	for i := range f.changes {
		text := f.changes[i].Text
		if times[text]++; times[text] == 1 {
			parts = append(parts, text)
		}
	}
	for i, text := range parts {
		if n := times[text]; n > 1 {
			parts[i] = fmt.Sprintf("%s (%d times)", text, n)
		}
	}
	sg.Text = strings.Join(parts, ", and ")
	switch more := f.nodes - 1; {
	case more <= 0 || !namesANode(f.changes):
	case more == 1:
		sg.Text += " (or on 1 other node)"
	default:
		sg.Text += fmt.Sprintf(" (or on one of %d other nodes)", more)
	}
	return sg
}

// namesANode reports whether a change concerns a single node.
func namesANode(changes []cluster.Remedy) bool {
	return slices.ContainsFunc(changes, func(c cluster.Remedy) bool { return c.Node != "" })
}
