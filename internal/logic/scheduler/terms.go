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

	// each says that every node is looked at: the terms know no order. Of dynamic terms what holds for a whole node class
	// changes with each placement; of reviving ones a node that refuses may take the task later.
	wishes, each, dynamic, revives bool
	odd                            []int32 // nodes that named affinities stand out
}

type spreadTerm struct {
	cluster.Spread
	view *view
	// parts are the shares of the values, by number, in wholes; -1 is for a value of no node that comes into question.
	parts  []int32
	wholes int32
	fewest int32 // as of change
	change int
}

type distinctTerm struct {
	cluster.Distinct
	view *view // nil: by node
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
		if t.Attribute != nodeName {
			t.view = y.groupView(c.group, t.Attribute)
			c.dynamic = true
		}
		c.distincts = append(c.distincts, t)
	}
	for i := range c.relations {
		t := &c.relations[i]
		c.dynamic = c.dynamic || t.table != nil
		c.revives = c.revives || t.Required && !t.Away
	}
	for i := range c.guards {
		c.dynamic = c.dynamic || c.guards[i].table != nil
	}
}

// settleDevices finds the node classes that have not the devices, even if nothing of them is used.
func (y *cycle) settleDevices(c *class) {
	if len(c.requests) == 0 {
		return
	}
	c.deviceless = make([]bool, len(y.fleet.catalog.classes))
	for _, class := range c.sieve.takes {
		_, lacking, _ := assign(y.fleet.catalog.classes[class].like.Devices, nil, c.requests)
		c.deviceless[class] = lacking >= 0
	}
}

func (y *cycle) settleAffinities(c *class) {
	for _, a := range c.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if a.Attribute == nodeName {
			c.named = append(c.named, a)
			switch a.Op {
			case cluster.OpEqual, "":
				c.odd = append(c.odd, y.slots([]string{a.Value})...)
			case cluster.OpIn:
				c.odd = append(c.odd, y.slots(a.Values)...)
			case cluster.OpNotEqual, cluster.OpNotIn, cluster.OpExists, cluster.OpLess, cluster.OpMore, cluster.OpAtLeast, cluster.OpAtMost:
				c.each = true
			default: // nothing meets it
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
	t := spreadTerm{Spread: spread, change: -1}
	c.dynamic = true
	c.revives = c.revives || spread.MaxSkew > 0
	if spread.Attribute == nodeName { // each node is a value of its own
		c.each = true
		c.spreads = append(c.spreads, t)
		return
	}
	t.view = y.groupView(c.group, spread.Attribute)
	t.parts = make([]int32, len(t.view.values))
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

func targetOf(targets []cluster.SpreadTarget, value string) int {
	return slices.IndexFunc(targets, func(t cluster.SpreadTarget) bool { return t.Value == value })
}

// spreadPoints is what a spread says to a value that has so many tasks and should have so large a part of count: all of its weight where there
// are none, none where there are as many as there should be, and less than none beyond.
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

// leastNear is least where each node is a value of its own.
func (y *cycle) leastNear(c *class) int32 {
	least := int32(-1)
	for _, class := range y.sieveOf(c).takes {
		y.visit(y.fleet.catalog.trees[byFill][class].page, func(slot int32) {
			if n := c.group.near(slot); least < 0 || n < least {
				least = n
			}
		})
	}
	return least
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

// classPoints is what the class's wishes say to all nodes of a node class.
func (c *class) classPoints(class int32) int64 {
	points := int64(0)
	if c.points != nil {
		points = int64(c.points[class])
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view != nil {
			v := t.view.table.of[class]
			points += spreadPoints(int64(t.Weight), int64(t.view.values[v]), int64(c.Count), int64(t.parts[v]), int64(t.wholes))
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
		if t := &c.spreads[i]; t.view == nil {
			part, wholes := y.nodePart(c, t, slot)
			points += spreadPoints(int64(t.Weight), int64(c.group.near(slot)), int64(c.Count), part, wholes)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table == nil {
			points += t.pointsFor(t.nodes[slot])
		}
	}
	return points
}

// nodePart is the share of one node, where each is a value of its own.
func (y *cycle) nodePart(c *class, t *spreadTerm, slot int32) (part, wholes int64) {
	open, named, own := int64(0), int64(0), targetOf(t.Targets, y.fleet.name(slot))
	for _, class := range y.sieveOf(c).takes {
		open += int64(y.fleet.catalog.classes[class].count)
	}
	for _, target := range t.Targets {
		named += int64(target.Percent)
		if i, found := y.fleet.search(target.Value); found && y.sieveOf(c).passes[y.fleet.loads[i].class] {
			open--
		}
	}
	open = max(open, 1)
	if own >= 0 {
		return int64(t.Targets[own].Percent) * open, 100 * open
	}
	return 100 - named, 100 * open
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

// met reports whether a demand on the nearness of others is met where there are so many of them. Where there is none anywhere, the first of
// those that want to be together is the one that the others join.
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
	class := y.load(slot).class
	for i := range c.distincts {
		t := &c.distincts[i]
		var tasks int32
		if t.view == nil {
			tasks = c.group.near(slot)
		} else {
			tasks = t.view.values[t.view.table.of[class]]
		}
		if int(tasks) >= t.Most {
			return cluster.ReasonDistinct, int64(i)
		}
	}
	for i := range c.spreads {
		t := &c.spreads[i]
		switch {
		case t.MaxSkew == 0:
		case t.view == nil:
			if int(c.group.near(slot)+1-y.leastNear(c)) > t.MaxSkew {
				return cluster.ReasonSkew, int64(i)
			}
		case int(t.view.values[t.view.table.of[class]]+1-t.least()) > t.MaxSkew:
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
		if t := &c.distincts[i]; t.view != nil && int(t.view.values[t.view.table.of[class]]) >= t.Most {
			return true
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view != nil && int(t.view.values[t.view.table.of[class]]+1-t.least()) > t.MaxSkew {
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
