package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// table is the values that the nodes of a fleet have for an attribute.
type table struct {
	of     []int32 // by node class, the number of its value
	values []string
}

// table returns that of an attribute other than the node's name. It is made once for each cycle.
func (y *cycle) table(attribute string) *table {
	if t, found := y.tables[attribute]; found {
		return t
	}
	classes := y.fleet.catalog.classes
	t, numbers := &table{of: make([]int32, len(classes))}, map[string]int32{}
	for i := range classes {
		if classes[i].count == 0 {
			continue
		}
		v := valueOf(&classes[i].like, attribute)
		number, found := numbers[v]
		if !found {
			number = int32(len(t.values))
			numbers[v] = number
			t.values = append(t.values, v)
		}
		t.of[i] = number
	}
	if y.tables == nil {
		y.tables = map[string]*table{}
	}
	y.tables[attribute] = t
	return t
}

// valueOf is the value of a node for an attribute, "" where it has none.
func valueOf(n *Node, name string) string {
	v, _ := attribute(n, name)
	return v
}

// view counts some tasks, by the value that their nodes have for an attribute; by node, where nodes of one class differ
// in it.
type view struct {
	table  *table          // nil: by node
	values []int32         // by number of the value
	nodes  map[int32]int32 // by slot; only those above 0. Of a fine label those on all nodes with the same value
	fine   string          // the attribute, if it is a fine label
	total  int
	change int // how often it changed
	falls  int // how often it became less
}

func (y *cycle) newView(attribute string) *view {
	if attribute == nodeName {
		return &view{nodes: map[int32]int32{}}
	}
	if y.fleet.fine(attribute) != nil {
		return &view{nodes: map[int32]int32{}, fine: attribute}
	}
	t := y.table(attribute)
	return &view{table: t, values: make([]int32, len(t.values))}
}

// add counts more tasks on a node. Those on nodes that are not known are not counted.
func (v *view) add(y *cycle, slot, tasks int32) {
	class := y.fleet.loads[slot].class
	if class < 0 || tasks == 0 {
		return
	}
	v.total += int(tasks)
	v.change++
	if tasks < 0 {
		v.falls++
	}
	switch {
	case v.table != nil:
		v.values[v.table.of[class]] += tasks
	case v.fine == "":
		v.count(slot, tasks)
	default:
		for _, peer := range y.peers(v.fine, slot) {
			v.count(peer, tasks)
		}
	}
}

func (v *view) count(slot, tasks int32) {
	if v.nodes[slot] += tasks; v.nodes[slot] == 0 {
		delete(v.nodes, slot)
	}
}

// at returns how many there are as near as the attribute says.
func (v *view) at(y *cycle, slot int32) int32 {
	if v.table == nil {
		return v.nodes[slot]
	}
	return v.values[v.table.of[y.fleet.loads[slot].class]]
}

// kin is the reservations of one cluster whose owners have the same labels.
type kin struct {
	cluster string
	labels  cluster.Labels
	at      map[int32]int32 // by slot
}

// guard is the reservations that keep the same tasks away.
type guard struct {
	away cluster.Relation // with clusters and attribute filled in
	at   map[int32]int32  // by slot
}

// clusterOf returns the cluster that a task's id says.
func clusterOf(id cluster.TaskID) string {
	name, _, _ := strings.Cut(string(id), ".")
	return name
}

// whole fills in what a relation of a task of the cluster leaves open.
func wholeRelation(r cluster.Relation, own string) cluster.Relation {
	if r.Attribute == "" {
		r.Attribute = nodeName
	}
	if len(r.Clusters) == 0 {
		r.Clusters = []string{own}
	}
	if r.Weight == 0 {
		r.Weight = cluster.DefaultWeight
	}
	return r
}

// means reports whether a relation, filled in, is about tasks of the cluster and labels.
func means(r *cluster.Relation, name string, labels cluster.Labels) bool {
	if len(labels) == 0 || !slices.Contains(r.Clusters, name) {
		return false
	}
	for key, value := range r.Labels { // order-free: all of them
		if have, found := labels[key]; !found || have != value {
			return false
		}
	}
	return true
}

// labelsKey appends labels.
func labelsKey(b []byte, labels cluster.Labels) []byte {
	b = appendNumber(b, uint64(len(labels)))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b = textKey(textKey(b, key), labels[key])
	}
	return b
}

func textKey(b []byte, s string) []byte {
	b = appendNumber(b, uint64(len(s)))
	return append(b, s...)
}

// relationKey says what a relation is about, and how near, but not what follows.
func relationKey(r *cluster.Relation) string {
	b := textKey(nil, r.Attribute)
	b = labelsKey(b, r.Labels)
	for _, name := range slices.Sorted(slices.Values(r.Clusters)) {
		b = textKey(b, name)
	}
	return string(b)
}

// neighbours is who stands on a fleet's nodes, as relations look at it.
type neighbours struct {
	kins   map[string]*kin
	guards map[string]*guard
}

func newNeighbours() neighbours {
	return neighbours{kins: map[string]*kin{}, guards: map[string]*guard{}}
}

// add counts a reservation in, or with a negative number of tasks out.
func (o *neighbours) add(r *Reservation, slot, tasks int32) {
	if len(r.Labels) > 0 {
		name := clusterOf(r.Task)
		key := string(labelsKey(textKey(nil, name), r.Labels))
		k := o.kins[key]
		if k == nil {
			k = &kin{name, r.Labels, map[int32]int32{}}
			o.kins[key] = k
		}
		if k.at[slot] += tasks; k.at[slot] == 0 {
			delete(k.at, slot)
		}
		if len(k.at) == 0 {
			delete(o.kins, key)
		}
	}
	for i := range r.Away {
		away := wholeRelation(r.Away[i], clusterOf(r.Task))
		key := relationKey(&away)
		g := o.guards[key]
		if g == nil {
			g = &guard{away, map[int32]int32{}}
			o.guards[key] = g
		}
		if g.at[slot] += tasks; g.at[slot] == 0 {
			delete(g.at, slot)
		}
		if len(g.at) == 0 {
			delete(o.guards, key)
		}
	}
}

func (o *neighbours) clone() neighbours {
	c := newNeighbours()
	for key, k := range o.kins { // order-free: a copy
		c.kins[key] = &kin{k.cluster, k.labels, maps.Clone(k.at)}
	}
	for key, g := range o.guards { // order-free: a copy
		c.guards[key] = &guard{g.away, maps.Clone(g.at)}
	}
	return c
}

// awayOf returns the demands of a placement that hold both ways.
func awayOf(p *cluster.Placement) (away []cluster.Relation) {
	for _, r := range p.Relations {
		if r.Away && r.Required {
			away = append(away, r)
		}
	}
	return away
}

// watch is the views of a cycle on other workloads: of tasks of some labels, or of those that keep some labels away.
type watch struct {
	about cluster.Relation
	*view
}

// relate makes the views that relations of the pending tasks and of those that are reserved need, before anything is
// placed.
func (y *cycle) relate() {
	guards := map[string]*watch{}
	for key, g := range y.fleet.neighbours.guards { // order-free: a copy
		w := &watch{g.away, y.newView(g.away.Attribute)}
		for slot, tasks := range g.at { // order-free: a sum
			w.add(y, slot, tasks)
		}
		guards[key] = w
	}
	views := map[string]*watch{}
	for _, c := range y.classes {
		name := clusterOf(c.Task)
		for i := range c.Placement.Relations {
			r := wholeRelation(c.Placement.Relations[i], name)
			key := relationKey(&r)
			w := views[key]
			if w == nil {
				w = &watch{r, y.newView(r.Attribute)}
				views[key] = w
				y.look(w)
			}
			t := relationTerm{Relation: r, view: w.view, own: means(&r, name, c.Labels)}
			c.relations = append(c.relations, t)
			if r.Away && r.Required {
				if guards[key] == nil {
					guards[key] = &watch{r, y.newView(r.Attribute)}
				}
				c.counts = append(c.counts, guards[key].view)
			}
		}
	}
	y.watches, y.guards = views, guards
	if len(views)+len(guards) == 0 {
		return
	}
	for _, c := range y.classes {
		name := clusterOf(c.Task)
		for _, w := range views { // order-free: who is counted where is
			if means(&w.about, name, c.Labels) {
				c.counts = append(c.counts, w.view)
			}
		}
		for _, w := range guards { // order-free: sorted below
			if means(&w.about, name, c.Labels) {
				c.guards = append(c.guards, guardTerm{w.view, guardText(&w.about)})
			}
		}
		slices.SortFunc(c.guards, func(a, b guardTerm) int { return strings.Compare(a.text, b.text) })
	}
}

// look counts those of the fleet that a watch is about.
func (y *cycle) look(w *watch) {
	for _, k := range y.fleet.neighbours.kins { // order-free: a sum
		if means(&w.about, k.cluster, k.labels) {
			for slot, tasks := range k.at { // order-free: a sum
				w.add(y, slot, tasks)
			}
		}
	}
}

// groupView counts the tasks of a group by the values of an attribute.
func (y *cycle) groupView(g *group, attribute string) *view {
	y.gather(g)
	if v, found := g.views[attribute]; found {
		return v
	}
	v := y.newView(attribute)
	if g.known != nil {
		for at, tasks := range g.known.at { // order-free: a sum
			if slices.Contains(g.counted, at.generation()) {
				v.add(y, at.slot(), tasks)
			}
		}
	}
	if g.unknown != nil {
		for at, tasks := range g.unknown.at { // order-free: a sum
			v.add(y, at.slot(), tasks)
		}
	}
	for slot, tasks := range g.placed { // order-free: a sum
		v.add(y, slot, tasks)
	}
	if g.views == nil {
		g.views = map[string]*view{}
	}
	g.views[attribute] = v
	return v
}

// relationText says a relation, as it stands in refusals: "near app=db", "away from app=db in the same label.zone".
func relationText(r *cluster.Relation) string {
	text := "near "
	if r.Away {
		text = "away from "
	}
	return text + labelsText(r.Labels) + inSame(r.Attribute)
}

// guarded begins the text of what others demand.
const guarded = "tasks there keep away from "

// guardText says what others keep a task away by.
func guardText(r *cluster.Relation) string {
	return guarded + labelsText(r.Labels) + inSame(r.Attribute)
}

func labelsText(labels cluster.Labels) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, " ")
}

func inSame(attribute string) string {
	if attribute == nodeName {
		return ""
	}
	return " in the same " + attribute
}

// appendNumber appends a number, in as many bytes as it needs and one that says how many.
func appendNumber(b []byte, n uint64) []byte {
	at := len(b)
	b = append(b, 0)
	for ; n > 0; n >>= 8 {
		b = append(b, byte(n))
		b[at]++
	}
	return b
}
