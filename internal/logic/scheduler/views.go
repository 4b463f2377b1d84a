package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// valueTable holds the values of an attribute on the nodes of a fleet.
type valueTable struct {
	of     []int32 // by node class, the number of its value
	values []string
}

// table returns the table of an attribute that is not per node. It is made once for each cycle.
func (y *cycle) table(attribute string) *valueTable {
	if t, found := y.tables[attribute]; found {
		return t
	}
	classes := y.fleet.catalog.classes
	t, numbers := &valueTable{of: make([]int32, len(classes))}, map[string]int32{}
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
		y.tables = map[string]*valueTable{}
	}
	y.tables[attribute] = t
	return t
}

// valueOf returns a node's value of an attribute, "" if it has none.
func valueOf(n *Node, name string) string {
	v, _ := attribute(n, name)
	return v
}

// view counts tasks by the value that their nodes have for an attribute. For per-node attributes it counts by node.
type view struct {
	table     *valueTable     // nil: counted by node
	values    []int32         // by number of the value
	nodes     map[int32]int32 // by slot, above 0; by fine label, with the count of all nodes with its value
	fine      string          // the attribute, if it is a fine label
	total     int
	changes   int // number of changes
	decreases int // number of decreases
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

// add adds tasks on a node; a negative number removes them. Nodes that are not set do not count.
func (v *view) add(y *cycle, slot, tasks int32) {
	class := y.fleet.loads[slot].class
	if class < 0 || tasks == 0 {
		return
	}
	v.total += int(tasks)
	v.changes++
	if tasks < 0 {
		v.decreases++
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

// at returns the number of tasks that are near the node by the view's attribute.
func (v *view) at(y *cycle, slot int32) int32 {
	if v.table == nil {
		return v.nodes[slot]
	}
	return v.values[v.table.of[y.fleet.loads[slot].class]]
}

// labelGroup is the reservations of one cluster whose owners have equal labels.
type labelGroup struct {
	cluster string
	labels  cluster.Labels
	at      map[int32]int32 // by slot
}

// exclusion is the reservations that exclude the same tasks, by required relations with Away.
type exclusion struct {
	away cluster.Relation // with clusters and attribute filled in
	at   map[int32]int32  // by slot
}

// clusterOf returns the cluster in a task's id.
func clusterOf(id cluster.TaskID) string {
	name, _, _ := strings.Cut(string(id), ".")
	return name
}

// wholeRelation fills in the defaults of a relation of a task of the cluster.
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

// relationSelects reports whether a relation, with defaults filled in, selects tasks of the cluster and labels.
func relationSelects(r *cluster.Relation, name string, labels cluster.Labels) bool {
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

// relationKey identifies the tasks that a relation selects and the attribute of nearness, but not its weight or sign.
func relationKey(r *cluster.Relation) string {
	b := textKey(nil, r.Attribute)
	b = labelsKey(b, r.Labels)
	for _, name := range slices.Sorted(slices.Values(r.Clusters)) {
		b = textKey(b, name)
	}
	return string(b)
}

// relationIndex counts a fleet's reservations by what relations select.
type relationIndex struct {
	labelGroups map[string]*labelGroup
	exclusions  map[string]*exclusion
}

func newRelationIndex() relationIndex {
	return relationIndex{labelGroups: map[string]*labelGroup{}, exclusions: map[string]*exclusion{}}
}

// add adds tasks of a reservation; a negative number removes them.
func (o *relationIndex) add(r *Reservation, slot, tasks int32) {
	if len(r.Labels) > 0 {
		name := clusterOf(r.Task)
		key := string(labelsKey(textKey(nil, name), r.Labels))
		k := o.labelGroups[key]
		if k == nil {
			k = &labelGroup{name, r.Labels, map[int32]int32{}}
			o.labelGroups[key] = k
		}
		if k.at[slot] += tasks; k.at[slot] == 0 {
			delete(k.at, slot)
		}
		if len(k.at) == 0 {
			delete(o.labelGroups, key)
		}
	}
	for i := range r.Away {
		away := wholeRelation(r.Away[i], clusterOf(r.Task))
		key := relationKey(&away)
		g := o.exclusions[key]
		if g == nil {
			g = &exclusion{away, map[int32]int32{}}
			o.exclusions[key] = g
		}
		if g.at[slot] += tasks; g.at[slot] == 0 {
			delete(g.at, slot)
		}
		if len(g.at) == 0 {
			delete(o.exclusions, key)
		}
	}
}

func (o *relationIndex) clone() relationIndex {
	c := newRelationIndex()
	for key, k := range o.labelGroups { // order-free: a copy
		c.labelGroups[key] = &labelGroup{k.cluster, k.labels, maps.Clone(k.at)}
	}
	for key, g := range o.exclusions { // order-free: a copy
		c.exclusions[key] = &exclusion{g.away, maps.Clone(g.at)}
	}
	return c
}

// awayOf returns the relations of a placement that exclude other tasks: they hold both ways.
func awayOf(p *cluster.Placement) (away []cluster.Relation) {
	for _, r := range p.Relations {
		if r.Away && r.Required {
			away = append(away, r)
		}
	}
	return away
}

// relationView counts tasks for relations in a cycle: those with some labels, or those that exclude tasks with some
// labels.
type relationView struct {
	about cluster.Relation
	*view
}

// makeRelationViews makes the views for the relations of pending tasks and of reservations, before anything is placed.
func (y *cycle) makeRelationViews() {
	exclusions := map[string]*relationView{}
	for key, g := range y.fleet.relationIndex.exclusions { // order-free: a copy
		w := &relationView{g.away, y.newView(g.away.Attribute)}
		for slot, tasks := range g.at { // order-free: a sum
			w.add(y, slot, tasks)
		}
		exclusions[key] = w
	}
	views := map[string]*relationView{}
	for _, c := range y.taskClasses {
		name := clusterOf(c.Task)
		for i := range c.Placement.Relations {
			r := wholeRelation(c.Placement.Relations[i], name)
			key := relationKey(&r)
			w := views[key]
			if w == nil {
				w = &relationView{r, y.newView(r.Attribute)}
				views[key] = w
				y.countReserved(w)
			}
			t := relationTerm{Relation: r, view: w.view, own: relationSelects(&r, name, c.Labels)}
			c.relations = append(c.relations, t)
			if r.Away && r.Required {
				if exclusions[key] == nil {
					exclusions[key] = &relationView{r, y.newView(r.Attribute)}
				}
				c.counts = append(c.counts, exclusions[key].view)
			}
		}
	}
	y.relationViews, y.exclusionViews = views, exclusions
	if len(views)+len(exclusions) == 0 {
		return
	}
	for _, c := range y.taskClasses {
		name := clusterOf(c.Task)
		for _, w := range views { // order-free: each view counts by itself
			if relationSelects(&w.about, name, c.Labels) {
				c.counts = append(c.counts, w.view)
			}
		}
		for _, w := range exclusions { // order-free: sorted below
			if relationSelects(&w.about, name, c.Labels) {
				c.exclusions = append(c.exclusions, exclusionTerm{w.view, exclusionText(&w.about)})
			}
		}
		slices.SortFunc(c.exclusions, func(a, b exclusionTerm) int { return strings.Compare(a.text, b.text) })
	}
}

// countReserved adds the fleet's reservations to a view.
func (y *cycle) countReserved(w *relationView) {
	for _, k := range y.fleet.relationIndex.labelGroups { // order-free: a sum
		if relationSelects(&w.about, k.cluster, k.labels) {
			for slot, tasks := range k.at { // order-free: a sum
				w.add(y, slot, tasks)
			}
		}
	}
}

// groupView returns the view that counts the tasks of a group by an attribute.
func (y *cycle) groupView(g *group, attribute string) *view {
	y.findReserved(g)
	if v, found := g.views[attribute]; found {
		return v
	}
	v := y.newView(attribute)
	if g.sameDefinition != nil {
		for at, tasks := range g.sameDefinition.counts { // order-free: a sum
			if slices.Contains(g.countedGenerations, at.generation()) {
				v.add(y, at.slot(), tasks)
			}
		}
	}
	if g.noDefinition != nil {
		for at, tasks := range g.noDefinition.counts { // order-free: a sum
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

// relationText returns a relation as text for refusals: "near app=db", "away from app=db in the same label.zone".
func relationText(r *cluster.Relation) string {
	text := "near "
	if r.Away {
		text = "away from "
	}
	return text + labelsText(r.Labels) + inSame(r.Attribute)
}

// exclusionPrefix starts the text of exclusionText.
const exclusionPrefix = "tasks there keep away from "

// exclusionText returns the refusal of a node whose tasks exclude others.
func exclusionText(r *cluster.Relation) string {
	return exclusionPrefix + labelsText(r.Labels) + inSame(r.Attribute)
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

// appendNumber appends a number: one byte for its length, then as few bytes as it needs.
func appendNumber(b []byte, n uint64) []byte {
	at := len(b)
	b = append(b, 0)
	for ; n > 0; n >>= 8 {
		b = append(b, byte(n))
		b[at]++
	}
	return b
}
