package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
)

// This file models preferences, and requirements on other tasks.

func tolerates(p cluster.Pending, t cluster.Taint) bool {
	return slices.ContainsFunc(p.Placement.Tolerations, func(o cluster.Toleration) bool { return o.Tolerates(t) })
}

// tainted reports whether a taint lets the node come last.
func (w world) tainted(n int, p cluster.Pending) bool {
	return slices.ContainsFunc(w.nodes[n].Taints, func(t cluster.Taint) bool {
		return t.Effect == cluster.TaintAvoid && !tolerates(p, t)
	})
}

// value returns a node's value of an attribute.
func (w world) value(n int, attribute string) string {
	switch attribute {
	case "node.name":
		return w.nodes[n].Name
	case "node.arch":
		return w.nodes[n].Arch
	case "node.pool":
		return w.nodes[n].Pool
	}
	if key, found := strings.CutPrefix(attribute, "label."); found {
		return w.nodes[n].Labels[key]
	}
	return ""
}

// runs reports whether one of a node's executors can run a task.
func runs(executors []string, p cluster.Pending) bool {
	for _, e := range executors {
		if e == "containerd" && !p.Plain || e != "containerd" && !p.NeedsImage {
			return true
		}
	}
	return false
}

// isFeasible reports whether a node would take a task if it were empty, names aside.
func (w world) isFeasible(n int, p cluster.Pending) bool {
	node := w.nodes[n]
	if node.State != cluster.NodeReady || node.Drain || node.Cordon && !p.Daemon ||
		p.Placement.Pool != "" && p.Placement.Pool != node.Pool ||
		slices.ContainsFunc(node.Taints, func(t cluster.Taint) bool {
			return t.Effect != cluster.TaintAvoid && !tolerates(p, t)
		}) ||
		reservedFrom(node, p).Code != "" || !runs(node.Executors, p) {
		return false
	}
	return !slices.ContainsFunc(p.Placement.Constraints, func(c cluster.Constraint) bool {
		return c.Attribute != "node.name" && !w.matches(n, c)
	}) && w.volumeRefusal(n, p).Code == ""
}

// asked is the key of a spreadOf: a task and an attribute.
type asked struct {
	task      cluster.TaskID
	attribute string
}

// spreadOf is the spread of a group's tasks: their number by value, whether a value has feasible nodes, and the minimum
// of those.
type spreadOf struct {
	tasks    map[string]int
	question map[string]bool
	fewest   int
}

// spread counts once until something is placed, because the model is slow.
func (w world) spread(p cluster.Pending, attribute string) spreadOf {
	if known, found := w.known[asked{p.Task, attribute}]; found {
		return known
	}
	s := spreadOf{map[string]int{}, map[string]bool{}, -1}
	for m := range w.nodes {
		s.tasks[w.value(m, attribute)] += w.siblings(m, p)
		if w.isFeasible(m, p) {
			s.question[w.value(m, attribute)] = true
		}
	}
	for v := range s.question {
		if n := s.tasks[v]; s.fewest < 0 || n < s.fewest {
			s.fewest = n
		}
	}
	w.known[asked{p.Task, attribute}] = s
	return s
}

// sharing returns the number of the group's tasks on nodes with the same value as a node.
func (w world) sharing(n int, p cluster.Pending, attribute string) int {
	return w.spread(p, attribute).tasks[w.value(n, attribute)]
}

func orName(attribute string) string {
	if attribute == "" {
		return "node.name"
	}
	return attribute
}

func about(r cluster.Relation, owner string, task cluster.TaskID, labels cluster.Labels) bool {
	parts, _ := task.Parts()
	clusters := r.Clusters
	if len(clusters) == 0 {
		clusters = []string{owner}
	}
	if len(labels) == 0 || !slices.Contains(clusters, parts.Cluster) {
		return false
	}
	for key, value := range r.Labels {
		if have, found := labels[key]; !found || have != value {
			return false
		}
	}
	return true
}

// near returns the number of tasks that a relation selects on nodes with the same value, and anywhere.
func (w world) near(n int, task cluster.TaskID, r cluster.Relation) (near, all int) {
	parts, _ := task.Parts()
	for _, held := range w.held {
		m := slices.IndexFunc(w.nodes, func(n scheduler.Node) bool { return n.Name == held.Node })
		if m < 0 || !about(r, parts.Cluster, held.Task, held.Labels) {
			continue
		}
		all++
		if w.value(m, orName(r.Attribute)) == w.value(n, orName(r.Attribute)) {
			near++
		}
	}
	return near, all
}

func (w world) demandRefusal(n int, p cluster.Pending) cluster.Refusal {
	detail := func(attribute string) string {
		if attribute == "node.name" {
			return "node.name is the same"
		}
		return attribute + " = " + w.value(n, attribute)
	}
	for _, d := range p.Placement.Distinct {
		if w.sharing(n, p, d.Attribute) >= max(d.Most, 1) {
			return cluster.Refusal{Code: cluster.ReasonDistinct, Detail: detail(d.Attribute)}
		}
	}
	for _, s := range p.Placement.Spread {
		if s.MaxSkew == 0 {
			continue
		}
		if w.sharing(n, p, s.Attribute)+1-w.spread(p, s.Attribute).fewest > s.MaxSkew {
			return cluster.Refusal{Code: cluster.ReasonSkew, Detail: detail(s.Attribute)}
		}
	}
	parts, _ := p.Task.Parts()
	for _, r := range p.Placement.Relations {
		near, all := w.near(n, p.Task, r)
		first := all == 0 && about(r, parts.Cluster, p.Task, p.Labels)
		if r.Required && (r.Away && near > 0 || !r.Away && near == 0 && !first) {
			return cluster.Refusal{Code: cluster.ReasonRelation, Detail: relation(r)}
		}
	}
	var guards []string
	for _, held := range w.held {
		if len(held.Away) == 0 {
			continue
		}
		m := slices.IndexFunc(w.nodes, func(n scheduler.Node) bool { return n.Name == held.Node })
		holder, _ := held.Task.Parts()
		for _, r := range held.Away {
			if m >= 0 && about(r, holder.Cluster, p.Task, p.Labels) &&
				w.value(m, orName(r.Attribute)) == w.value(n, orName(r.Attribute)) {
				guards = append(guards, "tasks there keep "+relation(r))
			}
		}
	}
	if len(guards) > 0 {
		return cluster.Refusal{Code: cluster.ReasonRelation, Detail: slices.Min(guards)}
	}
	return cluster.Refusal{}
}

func relation(r cluster.Relation) string {
	text := "near"
	if r.Away {
		text = "away from"
	}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		text += " " + key + "=" + r.Labels[key]
	}
	if orName(r.Attribute) != "node.name" {
		text += " in the same " + r.Attribute
	}
	return text
}

// points returns the sum of a task's preference points for a node, in thousandths of their weights.
func (w world) points(n int, p cluster.Pending) (sum int64) {
	sum = w.copyPoints(n, p)
	weight := func(of int) int64 {
		if of == 0 {
			of = cluster.DefaultWeight
		}
		return int64(of) * 1000
	}
	for _, a := range p.Placement.Affinities {
		if feasibility.Matches(a.Constraint, &w.nodes[n]) {
			sum += weight(a.Weight)
		}
	}
	for _, s := range p.Placement.Spread {
		sum += w.spreadPoints(n, p, s, weight(s.Weight))
	}
	for _, r := range p.Placement.Relations {
		if near, _ := w.near(n, p.Task, r); !r.Required && near > 0 {
			if r.Away {
				sum -= weight(r.Weight)
			} else {
				sum += weight(r.Weight)
			}
		}
	}
	return sum
}

func (w world) spreadPoints(n int, p cluster.Pending, s cluster.Spread, weight int64) int64 {
	targets, sum, values := map[string]int64{}, int64(0), int64(0)
	for _, t := range s.Targets {
		targets[t.Value] = int64(t.Percent)
		sum += int64(t.Percent)
	}
	for v := range w.spread(p, s.Attribute).question {
		if _, named := targets[v]; !named {
			values++
		}
	}
	values = max(values, 1)
	part := 100 - sum
	if percent, named := targets[w.value(n, s.Attribute)]; named {
		part = percent * values
	}
	if part <= 0 || p.Count <= 0 {
		return -weight
	}
	tasks := int64(w.sharing(n, p, s.Attribute))
	return max(weight-weight*tasks*100*values/(int64(p.Count)*part), -8*weight)
}

// devices returns the devices that a task would get on a node, or why it gets none.
func (w world) devices(n int, p cluster.Pending) (uses []cluster.DeviceUse, r cluster.Refusal) {
	return w.devicesOrSome(n, p, false)
}

// devicesOrSome is devices; with some it returns as many free devices as there are.
func (w world) devicesOrSome(n int, p cluster.Pending, some bool) (uses []cluster.DeviceUse, r cluster.Refusal) {
	share, memory := map[string]int{}, map[string]cluster.Bytes{}
	for _, held := range w.held {
		for _, u := range held.Devices {
			if held.Node == w.nodes[n].Name {
				share[u.ID] += u.Share
				memory[u.ID] += u.Memory
			}
		}
	}
	devices := slices.Clone(w.nodes[n].Devices)
	slices.SortFunc(devices, func(a, b cluster.Device) int { return strings.Compare(a.ID, b.ID) })
	var whole, anyWhole, parts, anyPart []cluster.DeviceRequest
	for _, q := range p.Devices {
		switch {
		case q.Share == 0 && len(q.Models) > 0:
			whole = append(whole, q)
		case q.Share == 0:
			anyWhole = append(anyWhole, q)
		case len(q.Models) > 0:
			parts = append(parts, q)
		default:
			anyPart = append(anyPart, q)
		}
	}
	own, total := map[string]int{}, map[string]cluster.Bytes{}
	for _, q := range slices.Concat(whole, anyWhole, parts, anyPart) {
		if q.Type == "" {
			q.Type = "gpu"
		}
		suit := slices.DeleteFunc(slices.Clone(devices), func(d cluster.Device) bool {
			return d.Type != q.Type || d.Memory < q.Memory || len(q.Models) > 0 && !slices.Contains(q.Models, d.Model)
		})
		var chosen []cluster.Device
		if q.Share == 0 {
			chosen = chooseWhole(suit, share, memory, max(q.Count, 1))
		} else {
			for _, d := range suit {
				left, space := 1000-share[d.ID], d.Memory-memory[d.ID]
				if left < q.Share || space < q.Memory {
					continue
				}
				if len(chosen) > 0 {
					c := chosen[0]
					if was := 1000 - share[c.ID]; left > was || left == was && space >= c.Memory-memory[c.ID] {
						continue
					}
				}
				chosen = []cluster.Device{d}
			}
		}
		for less := max(q.Count, 1) - 1; some && q.Share == 0 && len(chosen) == 0 && less > 0; less-- {
			chosen = chooseWhole(suit, share, memory, less)
		}
		if len(chosen) == 0 && !some {
			return nil, deviceRefusal(suit, share, memory, q)
		}
		for _, d := range chosen {
			use := q.Share
			if use == 0 {
				use = 1000
			} else {
				memory[d.ID] += q.Memory
				total[d.ID] += q.Memory
			}
			share[d.ID] += use
			own[d.ID] += use
		}
	}
	for _, id := range slices.Sorted(maps.Keys(own)) {
		uses = append(uses, cluster.DeviceUse{ID: id, Share: own[id], Memory: total[id]})
	}
	return uses, r
}

// chooseWhole chooses unused devices: on the NUMA node with the fewest of those that have enough.
func chooseWhole(suit []cluster.Device, share map[string]int, memory map[string]cluster.Bytes,
	count int,
) []cluster.Device {
	free := slices.DeleteFunc(slices.Clone(suit), func(d cluster.Device) bool {
		return share[d.ID] != 0 || memory[d.ID] != 0
	})
	if len(free) < count {
		return nil
	}
	slices.SortStableFunc(free, func(a, b cluster.Device) int { return a.Numa - b.Numa })
	best := free
	for numa := -1; numa < 4; numa++ {
		there := slices.DeleteFunc(slices.Clone(free), func(d cluster.Device) bool { return d.Numa != numa })
		if len(there) >= count &&
			(len(best) == len(free) && best[0].Numa != best[len(best)-1].Numa || len(there) < len(best)) {
			best = there
		}
	}
	return best[:count]
}

func deviceRefusal(suit []cluster.Device, share map[string]int, memory map[string]cluster.Bytes,
	q cluster.DeviceRequest,
) cluster.Refusal {
	kind, free, part := q.Type, 0, 0
	if len(q.Models) > 0 {
		kind += " of model " + strings.Join(q.Models, " or ")
	}
	if q.Memory > 0 && q.Share == 0 {
		kind += " with " + q.Memory.String()
	}
	for _, d := range suit {
		if share[d.ID] == 0 && memory[d.ID] == 0 {
			free++
		} else if share[d.ID] > 0 && share[d.ID] < 1000 {
			part++
		}
	}
	r := cluster.Refusal{Code: cluster.ReasonDevice, Short: int64(max(q.Count, 1) - free)}
	switch {
	case len(suit) == 0:
		r.Detail, r.Short = "no "+kind, 0
	case q.Share > 0:
		r.Detail, r.Short = "no "+kind+" with enough left to share", 0
	case part > 0:
		r.Detail = "too few " + kind + " free, some are used in part"
	default:
		r.Detail = "too few " + kind + " free"
	}
	return r
}

// imageBonus returns the bonus for images of a task on the node.
func (w world) imageBonus(n int, p cluster.Pending) int64 {
	present := 0
	for _, image := range p.Images {
		if slices.Contains(w.nodes[n].Images, image) {
			present++
		}
	}
	return int64(50_000 * present / max(len(p.Images), 1))
}

// reservedFrom returns the reservation that keeps the node from the task, at the zero time: time 0 of the drawn
// reservations.
func reservedFrom(node scheduler.Node, p cluster.Pending) cluster.Refusal {
	parts, _ := p.Task.Parts()
	kept, ours := "", false
	for _, r := range node.Reserved {
		admits := len(r.Clusters)+len(r.Labels) > 0 || p.Placement.Reservation == r.Name
		admits = admits && (p.Placement.Reservation == "" || p.Placement.Reservation == r.Name)
		admits = admits && (len(r.Clusters) == 0 || slices.Contains(r.Clusters, parts.Cluster))
		for k, v := range r.Labels {
			admits = admits && p.Labels[k] == v
		}
		begun := r.From.IsZero()
		ends := p.TimeLimit > 0 && time.Time{}.Add(time.Duration(p.TimeLimit)).Compare(r.From) <= 0
		near := r.From.Add(-time.Duration(r.Lead)).Compare(time.Time{}) <= 0
		switch {
		case admits:
			ours = ours || begun && r.Name == p.Placement.Reservation
		case p.Daemon || kept != "":
		case begun, p.TimeLimit > 0 && !ends, p.TimeLimit == 0 && near:
			kept = fmt.Sprintf("kept by the reservation %s from %s until %s", r.Name, r.From.Format(time.RFC3339),
				r.Until.Format(time.RFC3339))
		}
	}
	if kept == "" && p.Placement.Reservation != "" && !ours {
		kept = "not kept now by the reservation " + p.Placement.Reservation
	}
	if kept == "" {
		return cluster.Refusal{}
	}
	return cluster.Refusal{Code: cluster.ReasonReserved, Detail: kept}
}

// drawReserved draws reservations of a node from a small set.
func drawReserved(t *rapid.T) (all []*cluster.Reservation) {
	at := func(hours int) time.Time { return time.Time{}.Add(time.Duration(hours) * time.Hour) }
	if rapid.Bool().Draw(t, "reserved now") {
		all = append(all, pick(t, "reservation",
			&cluster.Reservation{Name: "r", From: at(0), Until: at(1)},
			&cluster.Reservation{
				Name: "s", From: at(0), Until: at(2), Clusters: []string{"c"},
				Labels: cluster.Labels{"app": "a"},
			}))
	}
	if rapid.Bool().Draw(t, "reserved later") {
		all = append(all, pick(t, "later reservation",
			&cluster.Reservation{Name: "s", From: at(2), Until: at(3), Labels: cluster.Labels{"tier": "1"}},
			&cluster.Reservation{
				Name: "later", From: at(4), Until: at(9), Lead: cluster.Duration(5 * time.Hour),
				Clusters: []string{"d"},
			}))
	}
	return all
}
