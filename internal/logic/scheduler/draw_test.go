package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// epoch is when the oldest generated task started to wait.
func epoch() time.Time { return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) }

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// oneIn is true about once in n draws. It shrinks to false.
func oneIn(t *rapid.T, name string, n int) bool {
	hits := make([]bool, n)
	hits[n-1] = true
	return pick(t, name, hits...)
}

func upTo(t *rapid.T, name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }

// drawNode draws a node; most are ready.
func drawNode(t *rapid.T, name string) scheduler.Node {
	both := []string{"containerd", "process"}
	n := scheduler.Node{
		Name:      name,
		State:     cluster.NodeReady,
		Cordon:    oneIn(t, "cordon", 24),
		Arch:      pick(t, "arch", "amd64", "arm64"),
		Kernel:    pick(t, "kernel", "5.10.0-3", "6.1.0-18-amd64", ""),
		Executors: pick(t, "executors", both, both, both, both, both[:1], both[:1], both[:1], both, both[1:], nil),
		Labels:    cluster.Labels{"zone": pick(t, "zone", "a", "b", "c")},
		Capacity: cluster.Demand{
			CPU:    cluster.MilliCPU(pick(t, "cpu", 4000, 8000, 4000, 2000, 500, 0)),
			Memory: pick(t, "memory", 8*cluster.GiB, 16*cluster.GiB, 4*cluster.GiB, cluster.GiB, 0),
			Disk:   pick(t, "disk", 20*cluster.GiB, 50*cluster.GiB, 10*cluster.GiB, cluster.GiB, 0),
		},
	}
	for i := range pick(t, "devices", 0, 0, 2, 4, 5) {
		n.Devices = append(n.Devices, cluster.Device{
			ID: fmt.Sprint("d", i*3%5), Type: pick(t, "type", "gpu", "gpu", "gpu", "fpga"),
			Model:  pick(t, "model", "A", "A", "B"),
			Memory: pick(t, "device memory", 16*cluster.GiB, 8*cluster.GiB, 0), Numa: upTo(t, "numa", 2) - 1,
		})
	}
	n.Images = pick(t, "images", nil, nil, []string{"i"}, []string{"j", "i"}, []string{"k"})
	drawVolumes(t, &n)
	if oneIn(t, "pool", 4) {
		n.Pool = "p"
	}
	if oneIn(t, "tainted", 8) {
		n.Taints = []cluster.Taint{drawTaint(t)}
		if oneIn(t, "tainted again", 3) {
			n.Taints = append(n.Taints, drawTaint(t))
		}
	}
	if oneIn(t, "kept", 8) {
		n.Reserved = drawReserved(t)
	}
	if oneIn(t, "drain", 30) {
		n.Cordon, n.Drain = true, true
	}
	if oneIn(t, "not ready", 20) {
		n.State = pick(t, "state", cluster.NodeSuspect, cluster.NodeDown, cluster.NodeDraining)
	}
	switch pick(t, "reserved", "", "", "", "most", "some") {
	case "some":
		n.ReservedPorts = []int{22, 80, 9000}
	case "most": // nearly all assignable ports
		for p := cluster.FirstAutoPort + upTo(t, "first", 2); p <= cluster.LastAutoPort-upTo(t, "last", 2); p++ {
			n.ReservedPorts = append(n.ReservedPorts, p)
		}
	}
	return n
}

func drawDevices(t *rapid.T) (list []cluster.DeviceRequest) {
	for range pick(t, "requests", 1, 1, 2) {
		r := cluster.DeviceRequest{
			Type:   pick(t, "type", "", "gpu", "gpu", "fpga"),
			Models: pick(t, "models", nil, nil, []string{"A"}, []string{"B", "C"}),
			Memory: pick(t, "needs memory", 0, 0, 4*cluster.GiB, 8*cluster.GiB),
		}
		if rapid.Bool().Draw(t, "in part") {
			r.Share = pick(t, "share", 500, 250, 300, 1000)
		} else {
			r.Count = upTo(t, "device count", 3)
		}
		list = append(list, r)
	}
	return list
}

func drawUses(t *rapid.T) (uses []cluster.DeviceUse) {
	for i := range pick(t, "uses", 0, 0, 1, 2) {
		u := cluster.DeviceUse{ID: fmt.Sprint("d", 2*i+upTo(t, "device", 1)), Share: pick(t, "use", 1000, 500, 300)}
		if u.Share < 1000 {
			u.Memory = pick(t, "used memory", 0, 3*cluster.GiB)
		}
		uses = append(uses, u)
	}
	return uses
}

func drawTaint(t *rapid.T) cluster.Taint {
	return cluster.Taint{
		Key: pick(t, "taint", "x", "y"), Value: pick(t, "taint value", "", "1"),
		Effect: pick(t, "effect", cluster.TaintAvoid, cluster.TaintAvoid, cluster.TaintNoSchedule, cluster.TaintEvict,
			""),
	}
}

// drawPlacement adds preferences and requirements to a task.
func drawPlacement(t *rapid.T, p *cluster.Placement) {
	attribute := func() string { return pick(t, "attribute", "label.zone", "node.arch", "node.name", "node.pool") }
	if oneIn(t, "in a pool", 12) {
		p.Pool = pick(t, "which pool", "p", "q")
	}
	if oneIn(t, "tolerant", 4) {
		p.Tolerations = []cluster.Toleration{
			{Key: pick(t, "tolerated", "x", "y", ""), Effect: pick(t, "tolerated effect", "", cluster.TaintAvoid)},
		}
	}
	for range pick(t, "affinities", 0, 0, 0, 1, 2) {
		c := drawConstraint(t)
		if oneIn(t, "by name", 4) {
			c = cluster.Constraint{
				Attribute: "node.name", Op: pick(t, "op", cluster.OpIn, cluster.OpNotIn),
				Values: []string{"n0", "n2"},
			}
		}
		p.Affinities = append(p.Affinities, cluster.Affinity{Constraint: c, Weight: pick(t, "weight", 0, 10, -20, 100)})
	}
	if oneIn(t, "spread", 5) {
		s := cluster.Spread{Attribute: attribute(), Weight: pick(t, "weight", 0, 100)}
		switch pick(t, "spread how", "", "skew", "skew", "targets") {
		case "skew":
			s.MaxSkew = 1 + upTo(t, "skew", 1)
		case "targets":
			s.Targets = []cluster.SpreadTarget{
				{Value: "a", Percent: 60},
				{Value: pick(t, "value", "b", "n1", ""), Percent: pick(t, "percent", 40, 0, 20)},
			}
		}
		p.Spread = append(p.Spread, s)
	}
	if oneIn(t, "distinct", 8) {
		p.Distinct = append(p.Distinct, cluster.Distinct{Attribute: attribute(), Most: upTo(t, "most", 2)})
	}
	for range pick(t, "relations", 0, 0, 0, 1, 2) {
		r := cluster.Relation{
			Labels: drawLabels(t), Attribute: pick(t, "near", "", "label.zone", "node.arch"),
			Away:     rapid.Bool().Draw(t, "away"),
			Required: oneIn(t, "required", 3), Weight: pick(t, "weight", 0, 10, 100),
		}
		if oneIn(t, "another cluster", 4) {
			r.Clusters = []string{"d", "e"}
		}
		p.Relations = append(p.Relations, r)
	}
}

func drawLabels(t *rapid.T) cluster.Labels {
	l := cluster.Labels{"app": pick(t, "app", "a", "b")}
	if oneIn(t, "more labels", 3) {
		l["tier"] = pick(t, "tier", "1", "2")
	}
	return l
}

func drawDemand(t *rapid.T) cluster.Demand {
	return cluster.Demand{
		CPU:    cluster.MilliCPU(pick(t, "cpu", 0, 100, 100, 250, 250, 1000, 1500)),
		Memory: pick(t, "memory", 0, 100*cluster.MiB, 200*cluster.MiB, cluster.GiB, 3*cluster.GiB),
		Disk:   pick(t, "disk", 0, 0, 0, cluster.GiB, 5*cluster.GiB),
	}
}

// drawQuota draws the quota of the cluster c.
func drawQuota(t *rapid.T) *cluster.Quota {
	if !oneIn(t, "quota", 8) {
		return nil
	}
	q := &cluster.Quota{
		CPU: cluster.MilliCPU(pick(t, "quota of cpu", 0, 0, 500, 2000)), Tasks: pick(t, "quota of tasks", 0, 0, 3, 6),
		Jobs: pick(t, "quota of jobs", 0, 0, 1, 2),
	}
	if oneIn(t, "quota of devices", 4) {
		q.Devices = map[string]int{"gpu": upTo(t, "gpus", 2)}
	}
	if rapid.Bool().Draw(t, "borrows") {
		q.Borrow = &cluster.QuotaBorrow{
			CPU: cluster.MilliCPU(pick(t, "cpu borrowed", 0, 500, 2000)), Tasks: upTo(t, "tasks borrowed", 3),
			Devices: map[string]int{"gpu": upTo(t, "gpus borrowed", 2)},
		}
	}
	return q
}

// drawLender draws the quota of a cluster that has no tasks.
func drawLender(t *rapid.T, q *cluster.Quota) *cluster.Quota {
	if q == nil || q.Borrow == nil {
		return nil
	}
	lender := &cluster.Quota{
		CPU: cluster.MilliCPU(pick(t, "cpu lent", 0, 500, 1500)), Tasks: upTo(t, "tasks lent", 3),
		Devices: map[string]int{"gpu": upTo(t, "gpus lent", 1)},
	}
	if oneIn(t, "keeps its own", 8) {
		lends := false
		lender.Lend = &lends
	}
	return lender
}

func drawConstraint(t *rapid.T) cluster.Constraint {
	return pick(t, "constraint",
		cluster.Constraint{Attribute: "label.zone", Value: "a"},
		cluster.Constraint{Attribute: "label.zone", Op: cluster.OpNotEqual, Value: "b"},
		cluster.Constraint{Attribute: "label.zone", Op: cluster.OpIn, Values: []string{"a", "b"}},
		cluster.Constraint{Attribute: "node.arch", Op: cluster.OpNotIn, Values: []string{"arm64"}},
		cluster.Constraint{Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: "6.1"},
		cluster.Constraint{Attribute: "node.executor", Value: "process"},
		cluster.Constraint{Attribute: "label.gpu", Op: cluster.OpExists},
	)
}

// drawDefinition draws one of few definitions. The definition of a pending task is always known.
func drawDefinition(t *rapid.T) cluster.Ref {
	return cluster.Ref{Name: "w", Version: 1 + upTo(t, "version", 1)}
}

// drawHeld draws the task of a reservation, and its definition.
func drawHeld(t *rapid.T, index int) (cluster.TaskID, cluster.Ref) {
	owner, step := pick(t, "owner", "o0", "o1", "o2", "old"), pick(t, "step", "", "", ".s")
	id := cluster.TaskID(fmt.Sprintf("c.%s.%d%s.%d", owner, 1+upTo(t, "generation", 1), step, index))
	if owner == "o0" && oneIn(t, "unknown definition", 3) { // its pending tasks have one generation
		return id, cluster.Ref{}
	}
	return id, drawDefinition(t)
}

func drawHeldLabels(t *rapid.T) cluster.Labels {
	if rapid.Bool().Draw(t, "labels") {
		return nil
	}
	return drawLabels(t)
}

func drawAway(t *rapid.T) []cluster.Relation {
	if !oneIn(t, "guard", 5) {
		return nil
	}
	return []cluster.Relation{
		{Labels: drawLabels(t), Away: true, Required: true, Attribute: pick(t, "guard by", "", "label.zone")},
	}
}

// drawOwner draws tasks of one owner with equal demands.
func drawOwner(t *rapid.T, owner string, names []string) []cluster.Pending {
	p := cluster.Pending{
		Attempt: 1 + upTo(t, "attempt", 1),
		Owner: cluster.OwnerRef{
			Kind: pick(t, "kind", cluster.KindService, cluster.KindJob), Cluster: "c",
			Name: owner,
		},
		Priority:   pick(t, "priority", 500, 500, 500, 900, 900, 500, 500, 1, 2, 500, 0),
		Demand:     drawDemand(t),
		NeedsImage: rapid.Bool().Draw(t, "image"),
		Since:      epoch().Add(time.Duration(upTo(t, "since", 2)) * time.Second),
		Placement: cluster.Placement{
			Strategy: pick(t, "strategy", "", cluster.StrategyBinpack, cluster.StrategySpread,
				cluster.StrategyWhole),
			AntiAffinity: pick(t, "apart", "", "", cluster.AntiAffinityNone, cluster.AntiAffinityPrefer,
				cluster.AntiAffinityDemand),
		},
		Ports: pick(t, "ports", nil, nil, nil, []cluster.Port{{Name: "http"}},
			[]cluster.Port{{Name: "http", Port: 8080}},
			[]cluster.Port{{Name: "a"}, {Name: "b", Port: 30001}, {Name: "c"}},
			[]cluster.Port{{Name: "x", Port: 443}, {Name: "y", Port: 8080}, {Name: "z"}}),
	}
	p.Plain = !p.NeedsImage && oneIn(t, "plain", 3)
	step := ""
	if p.Owner.Kind == cluster.KindJob {
		step = ".s"
	} else {
		p.Definition, p.Restarted = drawDefinition(t), uint64(upTo(t, "restarted", 3))
	}
	if oneIn(t, "daemon", 8) {
		p.Daemon = true
	}
	if oneIn(t, "constrained", 4) {
		p.Placement.Constraints = append(p.Placement.Constraints, drawConstraint(t))
	}
	if oneIn(t, "preferences", 4) {
		drawPlacement(t, &p.Placement)
	}
	p.TimeLimit = pick(t, "limit", 0, 0, cluster.Duration(time.Hour), cluster.Duration(3*time.Hour))
	if oneIn(t, "by reservation", 12) {
		p.Placement.Reservation = pick(t, "which reservation", "r", "s")
	}
	if rapid.Bool().Draw(t, "labels") {
		p.Labels = drawLabels(t)
	}
	if oneIn(t, "concurrency", 14) {
		p.Concurrency = &cluster.Concurrency{Group: pick(t, "group", "x", "x", "y"), Limit: 1 + upTo(t, "of group", 3)}
	}
	p.Count = upTo(t, "all", 8)
	p.Images = pick(t, "images", nil, nil, []string{"i"}, []string{"i", "j", "k"})
	if oneIn(t, "devices", 7) {
		p.Devices = drawDevices(t)
	}
	if oneIn(t, "gang", 8) {
		p.Gang, p.GangSize = pick(t, "gang name", "g", "h", owner), 1+upTo(t, "gang size", 3)
	}
	var pending []cluster.Pending
	for i := range 1 + upTo(t, "count", 7) {
		q := p
		q.Task = cluster.TaskID(fmt.Sprintf("c.%s.1%s.%d", owner, step, i))
		if owner != "o0" && oneIn(t, "older", 6) {
			q.Task = cluster.TaskID(fmt.Sprintf("c.%s.2%s.%d", owner, step, i))
		}
		if oneIn(t, "odd placement", 8) {
			drawPlacement(t, &q.Placement)
		}
		if oneIn(t, "odd", 8) { // some get other demands
			q.Demand = drawDemand(t)
		}
		if oneIn(t, "odd image", 8) {
			q.NeedsImage = !q.NeedsImage
			q.Plain = !q.NeedsImage && rapid.Bool().Draw(t, "odd plain")
		}
		if oneIn(t, "odd strategy", 8) {
			q.Placement.Strategy = pick(t, "odd strategy", cluster.StrategyBinpack, cluster.StrategySpread)
		}
		if oneIn(t, "again", 6) && len(names) > 0 {
			q.ExcludedNodes = []string{pick(t, "exclude", names...)}
		}
		if oneIn(t, "failed", 4) && len(names) > 0 {
			q.PenalizedNodes = slices.Compact([]string{pick(t, "penalize", names...), "unknown"})
		}
		if oneIn(t, "one node", 8) {
			q.OnlyNode = pick(t, "only", append([]string{"unknown"}, names...)...)
		}
		if oneIn(t, "volumes", 4) {
			drawVolumesAsked(t, &q)
		}
		if oneIn(t, "promised", 6) {
			q.Promised = pick(t, "promise", append([]string{"unknown"}, names...)...)
		}
		if oneIn(t, "other version", 8) && step == "" {
			q.Definition = drawDefinition(t)
		}
		if oneIn(t, "later", 4) {
			q.Since = epoch().Add(time.Minute)
		}
		pending = append(pending, q)
	}
	return pending
}

// drawWorld draws nodes, reservations and pending tasks.
func drawWorld(t *rapid.T) (w world, pending []cluster.Pending) {
	var names []string
	for i := range pick(t, "nodes", 6, 4, 9, 7, 5, 3, 2, 1, 8, 9, 7, 8, 9, 9, 8, 9, 9, 0) {
		names = append(names, fmt.Sprintf("n%d", i))
		w.nodes = append(w.nodes, drawNode(t, names[i]))
	}
	for i := range upTo(t, "held", 6) {
		task, definition := drawHeld(t, 100+i)
		w.held = append(w.held, scheduler.Reservation{
			Labels: drawHeldLabels(t), Away: drawAway(t), Devices: drawUses(t),
			UUID: fmt.Sprintf("held-%d", i), Task: task, Definition: definition,
			Node:   pick(t, "node", append([]string{"unknown"}, names...)...),
			Demand: drawDemand(t),
			Ports:  pick(t, "ports", nil, []int{8080}, []int{30001, 30000}),
			Group:  pick(t, "group", "", "", "x"),
		})
	}
	for i := range 1 + upTo(t, "owners", 4) {
		own := drawOwner(t, fmt.Sprintf("o%d", i), names)
		if pending = append(pending, own...); oneIn(t, "twin", 3) {
			pending = append(pending, twins(own)...)
		}
	}
	w.valueModel, w.quota = drawValueModel(t), drawQuota(t)
	w.lender = drawLender(t, w.quota)
	return w, pending
}

// twins returns the tasks of another job with the same requests: tasks of several jobs may be in one class. They wait
// for a minute less.
func twins(of []cluster.Pending) (twins []cluster.Pending) {
	for _, p := range of {
		if p.Owner.Kind != cluster.KindJob {
			return nil
		}
		name := p.Owner.Name + "x"
		p.Task = cluster.TaskID(strings.Replace(string(p.Task), "."+p.Owner.Name+".", "."+name+".", 1))
		p.Since = p.Since.Add(time.Minute)
		if p.Owner.Name = name; p.Gang != "" {
			p.Gang += "x"
		}
		twins = append(twins, p)
	}
	return twins
}

// drawValueModel draws a value model of devices, or rarely nil.
func drawValueModel(t *rapid.T) *scheduler.ValueModel {
	var m scheduler.Mix
	for range pick(t, "learned", 3, 2, 1, 0, 3, 3) {
		m.Learn(drawDemand(t), drawDevices(t), 1+upTo(t, "weight of it", 5))
	}
	if !m.Stale(nil) {
		return nil
	}
	return m.ValueModel()
}

// largeWorld returns a fleet large enough for trees of several pages, with many equal nodes of few kinds, and tasks
// that fill it. All comes from few numbers, so that a case is drawn quickly.
func largeWorld(t *rapid.T) (w world, cycles [][]cluster.Pending) {
	seed := rapid.Uint64().Draw(t, "seed")
	rnd := rand.New(rand.NewPCG(seed, 1))
	one := func(n int) int { return rnd.IntN(n) }
	nodes, kinds, gpus, hosts := 40+one(80), 1+one(6), one(3), 1+one(2)
	var mix scheduler.Mix
	for i := range nodes {
		n := scheduler.Node{
			Name: fmt.Sprintf("n%03d", i), State: cluster.NodeReady, Executors: []string{"containerd"},
			Labels: cluster.Labels{"zone": string(rune('a' + i%kinds)), "host": fmt.Sprint("h", i/hosts)},
			Capacity: cluster.Demand{
				CPU: cluster.MilliCPU(2000 << (i % kinds % 3)), Memory: 4*cluster.GiB +
					cluster.Bytes(one(1<<20)), Disk: 100 * cluster.GiB,
			},
		}
		for d := range gpus * (i % 5) { // half of the worlds have none
			n.Devices = append(n.Devices, cluster.Device{
				ID: fmt.Sprint("g", d), Type: "gpu", Model: string(rune('A' + i%kinds%2)), Memory: 16 * cluster.GiB,
				Numa: d % 2,
			})
		}
		for range one(3) {
			n.Images = append(n.Images, string(rune('i'+one(3))))
		}
		w.nodes = append(w.nodes, n)
	}
	for cycle := range 3 {
		var pending []cluster.Pending
		for o := range 1 + one(6) {
			owner := fmt.Sprintf("o%d", one(4))
			if o%2 == 0 {
				owner = fmt.Sprintf("c%d-%d", cycle, o)
			}
			p := cluster.Pending{
				Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: owner}, Priority: 1 +
					one(2), Attempt: 1,
				Definition: cluster.Ref{Name: "w", Version: 1},
				Demand: cluster.Demand{
					CPU:    cluster.MilliCPU(one(10) * 100),
					Memory: cluster.Bytes(one(5)) * 300 * cluster.MiB,
				},
				Placement: cluster.Placement{
					Strategy: []cluster.Strategy{
						"", cluster.StrategyBinpack, cluster.StrategySpread,
						cluster.StrategyWhole,
					}[one(4)],
					AntiAffinity: []cluster.AntiAffinity{
						"", cluster.AntiAffinityNone, cluster.AntiAffinityPrefer,
						cluster.AntiAffinityDemand,
					}[one(4)],
				},
			}
			if one(3) == 0 {
				p.Placement.Constraints = []cluster.Constraint{
					{Attribute: "label.zone", Op: cluster.OpNotEqual, Value: "b"},
				}
			}
			if gpus > 0 && one(2) == 0 {
				p.Devices = largeRequests(one)
				mix.Learn(p.Demand, p.Devices, 1+one(9))
			}
			if one(3) == 0 {
				p.Images = []string{"i", "j", "none"}[:1+one(3)]
			}
			if one(4) == 0 {
				p.Count = 20
				p.Placement.Spread = []cluster.Spread{
					{Attribute: []string{"label.zone", "label.host", "node.name"}[one(3)], MaxSkew: one(3)},
				}
			}
			if one(4) == 0 {
				p.Placement.Affinities = []cluster.Affinity{
					{Constraint: cluster.Constraint{Attribute: "label.zone", Value: "a"}, Weight: 10},
				}
			}
			if one(6) == 0 {
				p.Placement.Distinct = []cluster.Distinct{{Attribute: "label.host", Most: 1 + one(2)}}
			}
			if one(6) == 0 {
				p.Placement.Constraints = append(p.Placement.Constraints, cluster.Constraint{
					Attribute: "label.host", Op: []cluster.ConstraintOp{cluster.OpNotEqual, cluster.OpExists}[one(2)],
					Value: "h3",
				})
			}
			if one(3) == 0 {
				p.Ports = []cluster.Port{{Name: "http", Port: 8080 * one(2)}}
			}
			for i := range 1 + one(1+one(40)) {
				q := p
				q.Task = cluster.ServiceTask("c", owner, 1, 1000*cycle+100*o+i)
				if one(4) == 0 {
					q.PenalizedNodes = []string{fmt.Sprintf("n%03d", one(nodes))}
				}
				if one(3) == 0 {
					q.Demand.CPU += cluster.MilliCPU(one(50))
				}
				pending = append(pending, q)
			}
		}
		cycles = append(cycles, pending)
	}
	if mix.Stale(nil) {
		w.valueModel = mix.ValueModel()
	}
	return w, cycles
}

// largeRequests returns the device requests of tasks in a large world.
func largeRequests(one func(n int) int) []cluster.DeviceRequest {
	list := []cluster.DeviceRequest{{Count: 1 + one(2)}}
	if one(2) == 0 {
		list = []cluster.DeviceRequest{{Share: 100 * (1 + one(9)), Memory: cluster.Bytes(one(3)) * cluster.GiB}}
	}
	if one(3) == 0 {
		list[0].Models = []string{"A"}
	}
	if one(5) == 0 {
		list = append(list, cluster.DeviceRequest{Count: 1})
	}
	return list
}
