package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// terms are what a class of tasks wishes and demands of its nodes beside constraints and room.
type terms struct {
	deviceless []bool  // by node class; nil for tasks that ask for no devices
	points     []int32 // by node class, of the affinities that all of it meet alike
	named      []cluster.Affinity
	spreads    []spreadTerm
	distincts  []distinctTerm
	relations  []relationTerm
	guards     []guardTerm
	counts     []*view // in which its tasks are counted

	// each says that every node is looked at: the terms know no order. Of dynamic terms what holds for a whole node
	// class changes with each placement; of reviving ones a node that refuses may take the task later. Of joining ones,
	// which revive, it may take it since another one is there.
	wishes, each, dynamic, revives, joins bool
	odd                                   []int32 // nodes that named affinities stand out
}

type spreadTerm struct {
	cluster.Spread
	view *view
	// parts are the shares of the values, by number, in wholes; -1 is for a value of no node that comes into question.
	parts  []int32
	wholes int32
	said   []saidPoints // by number of the value
	// Where nodes of one class differ in the attribute: how many values come into question that no target names, and
	// what the targets name together, in percent.
	open, named int64
	// There: the nodes with a value that is a target, and what is said to those that have no task and are not among
	// them.
	targeted []int32
	empty    int64
	fewest   int32 // as of change
	change   int
	// There: how often more was counted since, at most, for fewest to hold, and how often less and in which epoch.
	margin, falls, epoch int
}

// saidPoints is what spreadPoints said of a value that has so many tasks.
type saidPoints struct {
	tasks  int32 // one more, as 0 says that nothing was said
	points int64
}

// points is what the spread says to all nodes of a node class.
func (t *spreadTerm) points(c *class, class int32) int64 {
	v := t.view.table.of[class]
	said, tasks := &t.said[v], t.view.values[v]
	if said.tasks != tasks+1 {
		*said = saidPoints{
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
	own bool // it is about tasks such as this one
}

type guardTerm struct {
	*view
	text string
}

// point is the unit of wishes: thousandths of a weight.
const point = 1000

// settle prepares the terms of a class, before its first turn.
func (y *cycle) settle(c *class) {
	p := &c.Placement
	s := y.sieveOf(c)
	c.wishes = s.avoid != nil || len(p.Affinities)+len(p.Spread)+len(c.relations) > 0
	y.settleDevices(c)
	y.settleImages(c)
	y.settleAffinities(c)
	for _, spread := range p.Spread {
		if spread.Weight == 0 {
			spread.Weight = cluster.DefaultWeight
		}
		y.settleSpread(c, spread)
	}
	for _, distinct := range p.Distinct {
		t := distinctTerm{Distinct: distinct}
		t.Most = max(t.Most, 1)
		t.view = y.groupView(c.group, t.Attribute)
		c.dynamic = c.dynamic || t.view.table != nil
		c.distincts = append(c.distincts, t)
	}
	for i := range c.relations {
		t := &c.relations[i]
		c.dynamic = c.dynamic || t.table != nil
		c.joins = c.joins || t.Required && !t.Away
		c.revives = c.revives || c.joins
	}
	for i := range c.guards {
		c.dynamic = c.dynamic || c.guards[i].table != nil
	}
}

// settleDevices finds the node classes that have not the devices, even if nothing of them is used. Tasks with the same
// requests share what was found.
func (y *cycle) settleDevices(c *class) {
	if len(c.requests) == 0 {
		return
	}
	all := y.pricingsOf(c)
	if all.deviceless == nil {
		classes := y.fleet.catalog.classes
		all.deviceless = make([]bool, len(classes))
		for i := range classes {
			all.deviceless[i] = !has(classes[i].like.Devices, c.requests)
		}
	}
	c.deviceless = all.deviceless
}

// mostOdd is up to how many nodes may stand out by affinities; of more each is looked at.
const mostOdd = 64

func (y *cycle) settleAffinities(c *class) {
	for _, a := range c.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if y.fleet.parts(a.Attribute) {
			c.named = append(c.named, a)
			values, few := valuesOf(a.Constraint)
			if c.odd = append(c.odd, y.having(a.Attribute, values)...); !few || len(c.odd) > mostOdd {
				c.each = true
			}
			continue
		}
		if c.points == nil {
			c.points = make([]int32, len(y.fleet.catalog.classes))
		}
		for _, class := range c.sieve.takes {
			if Matches(a.Constraint, &y.fleet.catalog.classes[class].like) {
				c.points[class] += int32(a.Weight) * point
			}
		}
	}
}

// settleSpread finds which share of the tasks each value should have.
func (y *cycle) settleSpread(c *class, spread cluster.Spread) {
	t := spreadTerm{Spread: spread, change: -1, falls: -1}
	c.revives = c.revives || spread.MaxSkew > 0
	if t.view = y.groupView(c.group, spread.Attribute); t.view.table == nil {
		y.settleFine(c, &t)
		c.spreads = append(c.spreads, t)
		return
	}
	c.dynamic = true
	t.parts, t.said = make([]int32, len(t.view.values)), make([]saidPoints, len(t.view.values))
	for i := range t.parts {
		t.parts[i] = -1
	}
	open, named := int32(0), int32(0)
	for _, class := range c.sieve.takes {
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

// settleFine is settleSpread where nodes of one class differ in the attribute. Nodes stand out that have tasks of the
// group, or a value that is a target.
func (y *cycle) settleFine(c *class, t *spreadTerm) {
	var named []string
	for _, target := range t.Targets {
		t.named += int64(target.Percent)
		named = append(named, target.Value)
	}
	if len(named) > 0 {
		t.targeted = y.having(t.Attribute, named)
	}
	t.open = int64(max(y.openValues(c, t, named), 1))
	t.empty = spreadPoints(int64(t.Weight), 0, int64(c.Count), 100-t.named, 100*t.open)
}

// openValues counts the values that come into question and are no targets.
func (y *cycle) openValues(c *class, t *spreadTerm, targets []string) (values int) {
	s := y.sieveOf(c)
	switch {
	case !s.fine && t.Attribute == nodeName:
		values = s.nodes
		for _, slot := range t.targeted {
			if s.passes[y.fleet.loads[slot].class] {
				values--
			}
		}
		return values
	case !s.fine && s.nodes == y.fleet.names.count: // all
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
	y.question(c, func(slot int32) { all[valueOf(y.node(slot), t.Attribute)] = true })
	for _, target := range targets {
		delete(all, target)
	}
	return len(all)
}

// outstanding yields the nodes to which spreads say something else than to the others of their class, some more than
// once.
func (c *class) outstanding(yield func(slot int32) bool) {
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

// standsOut reports whether outstanding yields the node.
func (c *class) standsOut(slot int32) bool {
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

// spreadPoints is what a spread says to a value that has so many tasks and should have so large a part of count: all of
// its weight where there are none, none where there are as many as there should be, and less than none beyond.
func spreadPoints(weight, tasks, count, part, wholes int64) int64 {
	if part <= 0 || count <= 0 {
		return -weight * point
	}
	return max(weight*point-weight*point*tasks*wholes/(count*part), -8*weight*point)
}

// least returns the number of tasks of the value that has the fewest.
func (t *spreadTerm) least() int32 {
	if t.change != t.view.change {
		t.change, t.fewest = t.view.change, -1
		for v, part := range t.parts {
			if n := t.view.values[v]; part >= 0 && (t.fewest < 0 || n < t.fewest) {
				t.fewest = n
			}
		}
	}
	return t.fewest
}

// leastOf returns the number of tasks of the value that has the fewest, of those that come into question.
func (y *cycle) leastOf(c *class, t *spreadTerm) int32 {
	v := t.view
	if v.table != nil {
		return t.least()
	}
	if s := y.sieveOf(c); !s.fine && s.nodes > len(v.nodes) { // some have none
		return 0
	}
	if t.change >= 0 && t.falls == v.falls && t.epoch == y.epoch && v.change-t.change < t.margin {
		return t.fewest
	}
	t.fewest = -1
	values := map[string]bool{} // that have the fewest
	y.question(c, func(slot int32) {
		n := v.nodes[slot]
		if t.fewest < 0 || n < t.fewest {
			t.fewest = n
			clear(values)
		}
		if n == t.fewest {
			values[valueOf(y.node(slot), t.Attribute)] = true
		}
	})
	t.change, t.falls, t.epoch, t.margin = v.change, v.falls, y.epoch, len(values)
	return t.fewest
}

// visit calls back for every node below a page.
func (y *cycle) visit(p *page, each func(slot int32)) {
	if p == nil {
		return
	}
	for i := range p.kids {
		y.visit(p.kids[i].page, each)
	}
	for i := range p.entries {
		each(p.entries[i].slot)
	}
}

// classPoints is what the class's wishes say to all nodes of a node class, but for those that stand out.
func (c *class) classPoints(class int32) int64 {
	points := int64(0)
	if c.points != nil {
		points = int64(c.points[class])
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table != nil {
			points += t.points(c, class)
		} else {
			points += t.empty
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table != nil {
			points += t.pointsFor(t.values[t.table.of[class]])
		}
	}
	return points
}

// nodePoints is what the class's wishes say to one node beside that.
func (y *cycle) nodePoints(c *class, slot int32) int64 {
	points := int64(0)
	for i := range c.named {
		if Matches(c.named[i].Constraint, y.node(slot)) {
			points += int64(c.named[i].Weight) * point
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table == nil {
			part, wholes := y.nodePart(t, slot)
			points += spreadPoints(int64(t.Weight), int64(t.view.nodes[slot]), int64(c.Count), part, wholes) - t.empty
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table == nil {
			points += t.pointsFor(t.nodes[slot])
		}
	}
	return points
}

// nodePart is the share of a node's value, where nodes of one class differ in it.
func (y *cycle) nodePart(t *spreadTerm, slot int32) (part, wholes int64) {
	if len(t.Targets) > 0 {
		if own := targetOf(t.Targets, valueOf(y.node(slot), t.Attribute)); own >= 0 {
			return int64(t.Targets[own].Percent) * t.open, 100 * t.open
		}
	}
	return 100 - t.named, 100 * t.open
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

// met reports whether a demand on the nearness of others is met where there are so many of them. Where there is none
// anywhere, the first of those that want to be together is the one that the others join.
func (t *relationTerm) met(tasks int32) bool {
	switch {
	case !t.Required:
		return true
	case t.Away:
		return tasks == 0
	}
	return tasks > 0 || t.own && t.total == 0
}

// breaks returns which of the class's demands on others the node does not meet, and its number in its list; or no code.
func (y *cycle) breaks(c *class, slot int32) (cluster.ReasonCode, int64) {
	for i := range c.distincts {
		if t := &c.distincts[i]; int(t.view.at(y, slot)) >= t.Most {
			return cluster.ReasonDistinct, int64(i)
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && int(t.view.at(y, slot)+1-y.leastOf(c, t)) > t.MaxSkew {
			return cluster.ReasonSkew, int64(i)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.met(t.at(y, slot)) {
			return cluster.ReasonRelation, int64(i)
		}
	}
	for i := range c.guards {
		if c.guards[i].at(y, slot) > 0 {
			return cluster.ReasonRelation, int64(len(c.relations) + i)
		}
	}
	return "", 0
}

// brokenDetail tells others what breaks said.
func (y *cycle) brokenDetail(c *class, code cluster.ReasonCode, number int64, slot int32) string {
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
	return c.guards[int(number)-len(c.relations)].text
}

// closed reports whether a demand keeps all nodes of a class away.
func (c *class) closed(class int32) bool {
	for i := range c.distincts {
		if t := &c.distincts[i]; t.view.table != nil && int(t.view.values[t.view.table.of[class]]) >= t.Most {
			return true
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view.table != nil &&
			int(t.view.values[t.view.table.of[class]]+1-t.least()) > t.MaxSkew {
			return true
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table != nil && !t.met(t.values[t.table.of[class]]) {
			return true
		}
	}
	for i := range c.guards {
		if t := &c.guards[i]; t.table != nil && t.values[t.table.of[class]] > 0 {
			return true
		}
	}
	return false
}
