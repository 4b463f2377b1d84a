package taskclass

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Preparer completes task classes before their first turn: the feasibility filter, and the terms by which nodes refuse
// tasks or score.
type Preparer struct {
	nodes   *fleet.Overlay
	views   *Views
	filters *feasibility.Filters
	fits    *devices.FitCache
}

// NewPreparer returns a preparer that finds filters, views and the results of device requests in the given sets.
func NewPreparer(nodes *fleet.Overlay, views *Views, f *feasibility.Filters, fits *devices.FitCache) Preparer {
	return Preparer{nodes: nodes, views: views, filters: f, fits: fits}
}

// Prepare completes the class before its first turn.
func (r *Preparer) Prepare(c *Class) {
	if c.prepared {
		return
	}
	c.prepared = true
	if c.Group.IsCounted {
		r.views.findReserved(c.Group)
	}
	r.prepareTerms(c)
}

// PrepareRanking makes the counts that a ranking of the class reads for each node.
func (r *Preparer) PrepareRanking(c *Class) {
	if c.Group.IsCounted {
		r.views.makeCounts(c.Group)
	}
}

// prepareTerms completes the terms of a class before its first turn.
func (r *Preparer) prepareTerms(c *Class) {
	p := &c.Task.Placement
	c.Filter = r.filters.Of(c.Task, c.Now)
	c.HasPreferences = c.Filter.Penalized != nil || len(p.Affinities)+len(p.Spread)+len(c.Relations) > 0
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
		t.View = r.views.groupView(c.Group, t.Attribute)
		c.IsDynamic = c.IsDynamic || t.View.Table != nil
		c.Distincts = append(c.Distincts, t)
	}
	for i := range c.Relations {
		t := &c.Relations[i]
		c.IsDynamic = c.IsDynamic || t.Table != nil
		c.Joins = c.Joins || t.Required && !t.Away
		c.Revives = c.Revives || c.Joins
	}
	for i := range c.Exclusions {
		c.IsDynamic = c.IsDynamic || c.Exclusions[i].Table != nil
	}
}

// prepareDevices finds the node classes that lack the devices even when unused. Task classes with equal requests share
// the result.
func (r *Preparer) prepareDevices(c *Class) {
	if len(c.Devices.Requests) == 0 {
		return
	}
	if c.Devices.Fits == nil {
		c.Devices.Fits, r.nodes.Buffer = r.fits.Of(c.Devices.Requests, c.Devices.UsesValueModel, r.nodes.Buffer)
	}
	all := c.Devices.Fits
	if all.Lacking == nil {
		classes := r.nodes.Fleet.Catalog.Classes
		all.Lacking = make([]bool, len(classes))
		for i := range classes {
			all.Lacking[i] = !devices.MeetEach(classes[i].Like.Devices, c.Devices.Requests)
		}
	}
	c.Devices.Lacking = all.Lacking
}

// prepareImages finds the nodes that have images of the class.
func (r *Preparer) prepareImages(c *Class) {
	nodes := 0
	for _, image := range c.Task.Images {
		c.Images.Nodes = append(c.Images.Nodes, r.nodes.Fleet.Images[image])
		nodes += len(r.nodes.Fleet.Images[image])
	}
	c.Images.Common = nodes > maxListedImageNodes
}

// maxAffinityScored is how many nodes may have individual scores by affinities. With more, the search judges every
// node.
const maxAffinityScored = 64

func (r *Preparer) prepareAffinities(c *Class) {
	for _, a := range c.Task.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if r.nodes.Fleet.Catalog.Labels.IsPerNode(a.Attribute) {
			c.NamedAffinities = append(c.NamedAffinities, a)
			values, few := feasibility.NamedValues(a.Constraint)
			c.AffinityScored = append(c.AffinityScored, r.nodes.NodesWith(a.Attribute, values)...)
			if !few || len(c.AffinityScored) > maxAffinityScored {
				c.ScansAll = true
			}
			continue
		}
		if c.points == nil {
			c.points = make([]int32, len(r.nodes.Fleet.Catalog.Classes))
		}
		for _, class := range c.Filter.Feasible {
			if feasibility.Matches(a.Constraint, &r.nodes.Fleet.Catalog.Classes[class].Like) {
				c.points[class] += int32(a.Weight) * Point
			}
		}
	}
}

// prepareSpread finds the target share of each value.
func (r *Preparer) prepareSpread(c *Class, spread cluster.Spread) {
	t := SpreadTerm{Spread: spread, Changes: -1, Decreases: -1}
	c.Revives = c.Revives || spread.MaxSkew > 0
	if t.View = r.views.groupView(c.Group, spread.Attribute); t.View.Table == nil {
		r.prepareFineSpread(c, &t)
		c.Spreads = append(c.Spreads, t)
		return
	}
	c.IsDynamic = true
	t.Parts, t.cached = make([]int32, len(t.View.Values)), make([]cachedPoints, len(t.View.Values))
	for i := range t.Parts {
		t.Parts[i] = -1
	}
	open, named := int32(0), int32(0)
	for _, class := range c.Filter.Feasible {
		v := t.View.Table.Of[class]
		if t.Parts[v] >= 0 {
			continue
		}
		if at := TargetOf(spread.Targets, t.View.Table.values[v]); at < 0 {
			t.Parts[v] = 0
			open++
		} else {
			t.Parts[v] = int32(spread.Targets[at].Percent)
		}
	}
	for _, target := range spread.Targets {
		named += int32(target.Percent)
	}
	t.Wholes = 100 * max(open, 1)
	for v := range t.Parts {
		switch {
		case t.Parts[v] < 0:
		case TargetOf(spread.Targets, t.View.Table.values[v]) < 0:
			t.Parts[v] = 100 - named
		default:
			t.Parts[v] *= max(open, 1)
		}
	}
	c.Spreads = append(c.Spreads, t)
}

// prepareFineSpread is prepareSpread for per-node attributes. Nodes with tasks of the group, or with the value of a
// target, have individual scores.
func (r *Preparer) prepareFineSpread(c *Class, t *SpreadTerm) {
	var named []string
	for _, target := range t.Targets {
		t.NamedPercent += int64(target.Percent)
		named = append(named, target.Value)
	}
	if len(named) > 0 {
		t.targeted = r.nodes.NodesWith(t.Attribute, named)
	}
	t.OpenCount = int64(max(r.openValues(c, t, named), 1))
	t.EmptyPoints = SpreadPoints(int64(t.Weight), 0, int64(c.Task.Count), 100-t.NamedPercent, 100*t.OpenCount)
}

// openValues counts the values of feasible nodes that no target names.
func (r *Preparer) openValues(c *Class, t *SpreadTerm, targets []string) (values int) {
	s := c.Filter
	switch {
	case !s.Fine && t.Attribute == fleet.NodeName:
		values = s.Nodes
		for _, slot := range t.targeted {
			if s.IsFeasible[r.nodes.Fleet.ClassOf(slot)] {
				values--
			}
		}
		return values
	case !s.Fine && s.Nodes == r.nodes.Fleet.Names.Count: // all nodes are feasible
		at := r.nodes.Fleet.Catalog.Labels.Fine(t.Attribute).At
		values = len(at)
		for i, target := range targets {
			if _, found := at[target]; found && !slices.Contains(targets[:i], target) {
				values--
			}
		}
		return values
	}
	all := map[string]bool{}
	c.Filter.VisitNodes(r.nodes, func(slot int32) { all[r.nodes.Node(slot).Value(t.Attribute)] = true })
	for _, target := range targets {
		delete(all, target)
	}
	return len(all)
}
