package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// preparer completes task classes before their first turn: the feasibility filter, and the terms by which nodes refuse
// tasks or score.
type preparer struct {
	nodes   *overlay
	views   *viewSet
	filters *filters
	fits    *fitCache
}

func newPreparer(nodes *overlay, views *viewSet, f *filters, fits *fitCache) preparer {
	return preparer{nodes: nodes, views: views, filters: f, fits: fits}
}

// prepare completes the class before its first turn.
func (r *preparer) prepare(c *taskClass) {
	if c.prepared {
		return
	}
	c.prepared = true
	if c.group.isCounted {
		r.views.findReserved(c.group)
	}
	r.prepareTerms(c)
}

// prepareRanking makes the counts that a ranking of the class reads for each node.
func (r *preparer) prepareRanking(c *taskClass) {
	if c.group.isCounted {
		r.views.makeCounts(c.group)
	}
}

// prepareTerms completes the terms of a class before its first turn.
func (r *preparer) prepareTerms(c *taskClass) {
	p := &c.task.Placement
	c.filter = r.filters.of(c.task, c.now)
	c.hasWishes = c.filter.penalized != nil || len(p.Affinities)+len(p.Spread)+len(c.relations) > 0
	r.prepareDevices(c)
	r.prepareImages(c)
	r.prepareAffinities(c)
	for _, spread := range p.Spread {
		if spread.Weight == 0 {
			spread.Weight = cluster.DefaultWeight
		}
		r.prepareSpread(c, spread)
	}
	for _, distinct := range p.Distinct {
		t := distinctTerm{Distinct: distinct}
		t.Most = max(t.Most, 1)
		t.view = r.views.groupView(c.group, t.Attribute)
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
func (r *preparer) prepareDevices(c *taskClass) {
	if len(c.devices.requests) == 0 {
		return
	}
	if c.devices.fits == nil {
		c.devices.fits, r.nodes.buffer = r.fits.of(c.devices.requests, c.devices.usesValueModel, r.nodes.buffer)
	}
	all := c.devices.fits
	if all.deviceless == nil {
		classes := r.nodes.fleet.catalog.classes
		all.deviceless = make([]bool, len(classes))
		for i := range classes {
			all.deviceless[i] = !hasDevices(classes[i].like.Devices, c.devices.requests)
		}
	}
	c.devices.lacking = all.deviceless
}

// prepareImages finds the nodes that have images of the class.
func (r *preparer) prepareImages(c *taskClass) {
	nodes := 0
	for _, image := range c.task.Images {
		c.images.nodes = append(c.images.nodes, r.nodes.fleet.images[image])
		nodes += len(r.nodes.fleet.images[image])
	}
	c.images.common = nodes > maxListedImageNodes
}

// maxAffinityScored is how many nodes may have individual scores by affinities. With more, the search judges every
// node.
const maxAffinityScored = 64

func (r *preparer) prepareAffinities(c *taskClass) {
	for _, a := range c.task.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if r.nodes.fleet.catalog.labels.isPerNode(a.Attribute) {
			c.namedAffinities = append(c.namedAffinities, a)
			values, few := namedValues(a.Constraint)
			c.affinityScored = append(c.affinityScored, r.nodes.nodesWith(a.Attribute, values)...)
			if !few || len(c.affinityScored) > maxAffinityScored {
				c.scansAll = true
			}
			continue
		}
		if c.points == nil {
			c.points = make([]int32, len(r.nodes.fleet.catalog.classes))
		}
		for _, class := range c.filter.feasible {
			if Matches(a.Constraint, &r.nodes.fleet.catalog.classes[class].like) {
				c.points[class] += int32(a.Weight) * point
			}
		}
	}
}

// prepareSpread finds the target share of each value.
func (r *preparer) prepareSpread(c *taskClass, spread cluster.Spread) {
	t := spreadTerm{Spread: spread, changes: -1, decreases: -1}
	c.revives = c.revives || spread.MaxSkew > 0
	if t.view = r.views.groupView(c.group, spread.Attribute); t.view.table == nil {
		r.prepareFineSpread(c, &t)
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
func (r *preparer) prepareFineSpread(c *taskClass, t *spreadTerm) {
	var named []string
	for _, target := range t.Targets {
		t.namedPercent += int64(target.Percent)
		named = append(named, target.Value)
	}
	if len(named) > 0 {
		t.targeted = r.nodes.nodesWith(t.Attribute, named)
	}
	t.openCount = int64(max(r.openValues(c, t, named), 1))
	t.emptyPoints = spreadPoints(int64(t.Weight), 0, int64(c.task.Count), 100-t.namedPercent, 100*t.openCount)
}

// openValues counts the values of feasible nodes that no target names.
func (r *preparer) openValues(c *taskClass, t *spreadTerm, targets []string) (values int) {
	s := c.filter
	switch {
	case !s.fine && t.Attribute == nodeName:
		values = s.nodes
		for _, slot := range t.targeted {
			if s.isFeasible[r.nodes.fleet.classOf(slot)] {
				values--
			}
		}
		return values
	case !s.fine && s.nodes == r.nodes.fleet.names.count: // all nodes are feasible
		at := r.nodes.fleet.catalog.labels.fine(t.Attribute).at
		values = len(at)
		for i, target := range targets {
			if _, found := at[target]; found && !slices.Contains(targets[:i], target) {
				values--
			}
		}
		return values
	}
	all := map[string]bool{}
	c.filter.visitNodes(r.nodes, func(slot int32) { all[r.nodes.node(slot).Value(t.Attribute)] = true })
	for _, target := range targets {
		delete(all, target)
	}
	return len(all)
}
