package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// terms are the wishes and demands of a task class beside constraints and room.
type terms struct {
	// deviceless says, by node class, that it lacks the requested devices even when unused; nil without requests.
	deviceless      []bool
	points          []int32 // by node class, of affinities that all its nodes meet alike
	namedAffinities []cluster.Affinity
	spreads         []spreadTerm
	distincts       []distinctTerm
	relations       []relationTerm
	exclusions      []exclusionTerm
	counts          []*view // the views that count its tasks

	// scansAll: every node is judged, because no tree order holds. isDynamic: scores or refusals of whole node classes
	// change with each placement. revives: a node that refuses may become feasible in the same cycle. joins: it may do
	// so because another task was placed; joins implies revives.
	hasWishes, scansAll, isDynamic, revives, joins bool
	affinityScored                                 []int32 // nodes with individual scores by namedAffinities
}

type spreadTerm struct {
	cluster.Spread
	view *view
	// parts are the target shares by number of the value, out of wholes; -1 for values without a feasible node.
	parts  []int32
	wholes int32
	cached []cachedPoints // by number of the value
	// openCount and namedPercent are set for per-node attributes: the number of feasible values that no target names,
	// and the sum of the targets in percent.
	openCount, namedPercent int64
	// targeted and emptyPoints are set for per-node attributes: the nodes with a target's value, and the points of
	// other nodes that have no task.
	targeted    []int32
	emptyPoints int64
	minimum     int32 // valid at changes
	changes     int
	// minimum of a per-node attribute holds for fewer than margin increases, and while decreases and undoCount stay the
	// same.
	margin, decreases, undoCount int
}

// cachedPoints is the result of spreadPoints for a value with a number of tasks.
type cachedPoints struct {
	tasks  int32 // the number + 1; 0 means empty
	points int64
}

// points returns the points of the spread for all nodes of a node class.
func (t *spreadTerm) points(c *taskClass, class int32) int64 {
	v := t.view.table.of[class]
	said, tasks := &t.cached[v], t.view.values[v]
	if said.tasks != tasks+1 {
		*said = cachedPoints{
			tasks + 1,
			spreadPoints(int64(t.Weight), int64(tasks), int64(c.Count), int64(t.parts[v]), int64(t.wholes)),
		}
	}
	return said.points
}

type distinctTerm struct {
	cluster.Distinct
	view *view
}

type relationTerm struct {
	cluster.Relation
	*view
	own bool // it selects the task's own kind
}

type exclusionTerm struct {
	*view
	text string
}

// point is the unit of wishes: 1000 points are a weight of 1.
const point = 1000

// prepareTerms completes the terms of a class before its first turn.
func (y *cycle) prepareTerms(c *taskClass) {
	p := &c.Placement
	s := y.filterOf(c)
	c.hasWishes = s.penalized != nil || len(p.Affinities)+len(p.Spread)+len(c.relations) > 0
	y.prepareDevices(c)
	y.prepareImages(c)
	y.prepareAffinities(c)
	for _, spread := range p.Spread {
		if spread.Weight == 0 {
			spread.Weight = cluster.DefaultWeight
		}
		y.prepareSpread(c, spread)
	}
	for _, distinct := range p.Distinct {
		t := distinctTerm{Distinct: distinct}
		t.Most = max(t.Most, 1)
		t.view = y.groupView(c.group, t.Attribute)
		c.isDynamic = c.isDynamic || t.view.table != nil
		c.distincts = append(c.distincts, t)
	}
	for i := range c.relations {
		t := &c.relations[i]
		c.isDynamic = c.isDynamic || t.table != nil
		c.joins = c.joins || t.Required && !t.Away
		c.revives = c.revives || c.joins
	}
	for i := range c.exclusions {
		c.isDynamic = c.isDynamic || c.exclusions[i].table != nil
	}
}

// prepareDevices finds the node classes that lack the devices even when unused. Task classes with equal requests share
// the result.
func (y *cycle) prepareDevices(c *taskClass) {
	if len(c.requests) == 0 {
		return
	}
	all := y.deviceFitsOf(c)
	if all.deviceless == nil {
		classes := y.fleet.catalog.classes
		all.deviceless = make([]bool, len(classes))
		for i := range classes {
			all.deviceless[i] = !hasDevices(classes[i].like.Devices, c.requests)
		}
	}
	c.deviceless = all.deviceless
}

// maxAffinityScored is how many nodes may have individual scores by affinities. With more, the search judges every
// node.
const maxAffinityScored = 64

func (y *cycle) prepareAffinities(c *taskClass) {
	for _, a := range c.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if y.fleet.isPerNode(a.Attribute) {
			c.namedAffinities = append(c.namedAffinities, a)
			values, few := namedValues(a.Constraint)
			c.affinityScored = append(c.affinityScored, y.nodesWith(a.Attribute, values)...)
			if !few || len(c.affinityScored) > maxAffinityScored {
				c.scansAll = true
			}
			continue
		}
		if c.points == nil {
			c.points = make([]int32, len(y.fleet.catalog.classes))
		}
		for _, class := range c.filter.feasible {
			if Matches(a.Constraint, &y.fleet.catalog.classes[class].like) {
				c.points[class] += int32(a.Weight) * point
			}
		}
	}
}

// prepareSpread finds the target share of each value.
func (y *cycle) prepareSpread(c *taskClass, spread cluster.Spread) {
	t := spreadTerm{Spread: spread, changes: -1, decreases: -1}
	c.revives = c.revives || spread.MaxSkew > 0
	if t.view = y.groupView(c.group, spread.Attribute); t.view.table == nil {
		y.prepareFineSpread(c, &t)
		c.spreads = append(c.spreads, t)
		return
	}
	c.isDynamic = true
	t.parts, t.cached = make([]int32, len(t.view.values)), make([]cachedPoints, len(t.view.values))
	for i := range t.parts {
		t.parts[i] = -1
	}
	open, named := int32(0), int32(0)
	for _, class := range c.filter.feasible {
		v := t.view.table.of[class]
		if t.parts[v] >= 0 {
			continue
		}
		if at := targetOf(spread.Targets, t.view.table.values[v]); at < 0 {
			t.parts[v] = 0
			open++
		} else {
			t.parts[v] = int32(spread.Targets[at].Percent)
		}
	}
	for _, target := range spread.Targets {
		named += int32(target.Percent)
	}
	t.wholes = 100 * max(open, 1)
	for v := range t.parts {
		switch {
		case t.parts[v] < 0:
		case targetOf(spread.Targets, t.view.table.values[v]) < 0:
			t.parts[v] = 100 - named
		default:
			t.parts[v] *= max(open, 1)
		}
	}
	c.spreads = append(c.spreads, t)
}

// prepareFineSpread is prepareSpread for per-node attributes. Nodes with tasks of the group, or with the value of a
// target, have individual scores.
func (y *cycle) prepareFineSpread(c *taskClass, t *spreadTerm) {
	var named []string
	for _, target := range t.Targets {
		t.namedPercent += int64(target.Percent)
		named = append(named, target.Value)
	}
	if len(named) > 0 {
		t.targeted = y.nodesWith(t.Attribute, named)
	}
	t.openCount = int64(max(y.openValues(c, t, named), 1))
	t.emptyPoints = spreadPoints(int64(t.Weight), 0, int64(c.Count), 100-t.namedPercent, 100*t.openCount)
}

// openValues counts the values of feasible nodes that no target names.
func (y *cycle) openValues(c *taskClass, t *spreadTerm, targets []string) (values int) {
	s := y.filterOf(c)
	switch {
	case !s.fine && t.Attribute == nodeName:
		values = s.nodes
		for _, slot := range t.targeted {
			if s.isFeasible[y.fleet.loads[slot].class] {
				values--
			}
		}
		return values
	case !s.fine && s.nodes == y.fleet.names.count: // all nodes are feasible
		at := y.fleet.fine(t.Attribute).at
		values = len(at)
		for i, target := range targets {
			if _, found := at[target]; found && !slices.Contains(targets[:i], target) {
				values--
			}
		}
		return values
	}
	all := map[string]bool{}
	y.visitFeasible(c, func(slot int32) { all[valueOf(y.node(slot), t.Attribute)] = true })
	for _, target := range targets {
		delete(all, target)
	}
	return len(all)
}

// spreadScored yields the nodes with individual scores by spreads, some more than once.
func (c *taskClass) spreadScored(yield func(slot int32) bool) {
	for i := range c.spreads {
		t := &c.spreads[i]
		if t.view.table != nil {
			continue
		}
		for slot := range t.view.nodes { // order-free: each for itself
			if !yield(slot) {
				return
			}
		}
		for _, slot := range t.targeted {
			if !yield(slot) {
				return
			}
		}
	}
}

// isSpreadScored reports whether spreadScored yields the node.
func (c *taskClass) isSpreadScored(slot int32) bool {
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table == nil && (t.view.nodes[slot] > 0 || slices.Contains(t.targeted, slot)) {
			return true
		}
	}
	return false
}

func targetOf(targets []cluster.SpreadTarget, value string) int {
	return slices.IndexFunc(targets, func(t cluster.SpreadTarget) bool { return t.Value == value })
}

// spreadPoints returns the points of a spread for a value that has so many tasks, and whose share of count is
// part/wholes. Without tasks it is the whole weight, at the share 0, and beyond it negative.
func spreadPoints(weight, tasks, count, part, wholes int64) int64 {
	if part <= 0 || count <= 0 {
		return -weight * point
	}
	return max(weight*point-weight*point*tasks*wholes/(count*part), -8*weight*point)
}

// minTasks returns the least number of tasks of any value with a feasible node.
func (t *spreadTerm) minTasks() int32 {
	if t.changes != t.view.changes {
		t.changes, t.minimum = t.view.changes, -1
		for v, part := range t.parts {
			if n := t.view.values[v]; part >= 0 && (t.minimum < 0 || n < t.minimum) {
				t.minimum = n
			}
		}
	}
	return t.minimum
}

// minTasksOf is minTasks for any attribute, also for per-node attributes.
func (y *cycle) minTasksOf(c *taskClass, t *spreadTerm) int32 {
	v := t.view
	if v.table != nil {
		return t.minTasks()
	}
	if s := y.filterOf(c); !s.fine && s.nodes > len(v.nodes) { // some nodes have no task
		return 0
	}
	if t.changes >= 0 && t.decreases == v.decreases && t.undoCount == y.undoCount && v.changes-t.changes < t.margin {
		return t.minimum
	}
	t.minimum = -1
	values := map[string]bool{} // values with the minimum
	y.visitFeasible(c, func(slot int32) {
		n := v.nodes[slot]
		if t.minimum < 0 || n < t.minimum {
			t.minimum = n
			clear(values)
		}
		if n == t.minimum {
			values[valueOf(y.node(slot), t.Attribute)] = true
		}
	})
	t.changes, t.decreases, t.undoCount, t.margin = v.changes, v.decreases, y.undoCount, len(values)
	return t.minimum
}

// visit calls each for every node below a page.
func (y *cycle) visit(p *page, each func(slot int32)) {
	if p == nil {
		return
	}
	for i := range p.children {
		y.visit(p.children[i].page, each)
	}
	for i := range p.entries {
		each(p.entries[i].slot)
	}
}

// classPoints returns the wish points of all nodes of a node class without an individual score.
func (c *taskClass) classPoints(class int32) int64 {
	points := int64(0)
	if c.points != nil {
		points = int64(c.points[class])
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table != nil {
			points += t.points(c, class)
		} else {
			points += t.emptyPoints
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table != nil {
			points += t.pointsFor(t.values[t.table.of[class]])
		}
	}
	return points
}

// nodePoints returns the wish points that a node has beside classPoints.
func (y *cycle) nodePoints(c *taskClass, slot int32) int64 {
	points := int64(0)
	for i := range c.namedAffinities {
		if Matches(c.namedAffinities[i].Constraint, y.node(slot)) {
			points += int64(c.namedAffinities[i].Weight) * point
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table == nil {
			part, wholes := y.nodePart(t, slot)
			own := spreadPoints(int64(t.Weight), int64(t.view.nodes[slot]), int64(c.Count), part, wholes)
			points += own - t.emptyPoints
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table == nil {
			points += t.pointsFor(t.nodes[slot])
		}
	}
	return points
}

// nodePart returns the target share of a node's value, for per-node attributes.
func (y *cycle) nodePart(t *spreadTerm, slot int32) (part, wholes int64) {
	if len(t.Targets) > 0 {
		if own := targetOf(t.Targets, valueOf(y.node(slot), t.Attribute)); own >= 0 {
			return int64(t.Targets[own].Percent) * t.openCount, 100 * t.openCount
		}
	}
	return 100 - t.namedPercent, 100 * t.openCount
}

func (t *relationTerm) pointsFor(tasks int32) int64 {
	switch {
	case t.Required, tasks == 0:
		return 0
	case t.Away:
		return -int64(t.Weight) * point
	}
	return int64(t.Weight) * point
}

// met reports whether a required relation is met where so many selected tasks are near. If no selected task exists
// anywhere, the first of the tasks that want to be together may go anywhere.
func (t *relationTerm) met(tasks int32) bool {
	switch {
	case !t.Required:
		return true
	case t.Away:
		return tasks == 0
	}
	return tasks > 0 || t.own && t.total == 0
}

// unmetTerm returns the code of the first distinct, spread, relation or exclusion that the node does not meet, and its
// index; or no code.
func (y *cycle) unmetTerm(c *taskClass, slot int32) (cluster.ReasonCode, int64) {
	for i := range c.distincts {
		if t := &c.distincts[i]; int(t.view.at(y, slot)) >= t.Most {
			return cluster.ReasonDistinct, int64(i)
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && int(t.view.at(y, slot)+1-y.minTasksOf(c, t)) > t.MaxSkew {
			return cluster.ReasonSkew, int64(i)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.met(t.at(y, slot)) {
			return cluster.ReasonRelation, int64(i)
		}
	}
	for i := range c.exclusions {
		if c.exclusions[i].at(y, slot) > 0 {
			return cluster.ReasonRelation, int64(len(c.relations) + i)
		}
	}
	return "", 0
}

// unmetTermDetail returns the result of unmetTerm as text.
func (y *cycle) unmetTermDetail(c *taskClass, code cluster.ReasonCode, number int64, slot int32) string {
	value := func(attribute string) string {
		if attribute == nodeName {
			return "node.name is the same"
		}
		return attribute + " = " + valueOf(y.node(slot), attribute)
	}
	switch {
	case code == cluster.ReasonDistinct:
		return value(c.distincts[number].Attribute)
	case code == cluster.ReasonSkew:
		return value(c.spreads[number].Attribute)
	case int(number) < len(c.relations):
		return relationText(&c.relations[number].Relation)
	}
	return c.exclusions[int(number)-len(c.relations)].text
}

// refusesNodeClass reports whether a term keeps the class from all nodes of a node class.
func (c *taskClass) refusesNodeClass(class int32) bool {
	for i := range c.distincts {
		if t := &c.distincts[i]; t.view.table != nil && int(t.view.values[t.view.table.of[class]]) >= t.Most {
			return true
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view.table != nil &&
			int(t.view.values[t.view.table.of[class]]+1-t.minTasks()) > t.MaxSkew {
			return true
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table != nil && !t.met(t.values[t.table.of[class]]) {
			return true
		}
	}
	for i := range c.exclusions {
		if t := &c.exclusions[i]; t.table != nil && t.values[t.table.of[class]] > 0 {
			return true
		}
	}
	return false
}
