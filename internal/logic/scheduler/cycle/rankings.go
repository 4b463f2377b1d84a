package cycle

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/evaluation"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// rankings makes and updates the rankings of task classes. The placements of a large class give most nodes individual
// scores; a ranking evaluates each node once and then only the touched ones.
type rankings struct {
	nodes *fleet.Overlay
	eval  *evaluation.Evaluator
	spare []*rank.Ranking // for reuse
}

// rank makes a ranking of all nodes. It takes most ranks from the fleet's trees, and judges again the nodes that the
// cycle changed or that have individual scores.
func (k *rankings) rank(c *taskclass.Class) *rank.Ranking {
	r := k.spareOne()
	s := c.Filter
	order := fleet.ByFill
	if c.Strategy == cluster.StrategyWhole {
		order = fleet.ByBalance
	}
	each := c.ScansAll || len(c.Devices.Requests)+len(c.Ports.Fixed)+c.Ports.Auto+len(s.PerNode) > 0
	for _, class := range s.Feasible {
		p := k.nodes.Fleet.Catalog.Trees[order][class].Page
		k.rankPage(c, r, p, class, each || k.eval.ValueModelApplies(c, class))
	}
	again := func(slot int32) {
		r.Ranks[slot] = rank.Refused()
		if k.eval.IsFeasible(c, slot) {
			r.Ranks[slot] = k.eval.RankOf(c, slot)
		}
	}
	if !each {
		k.visitIndividual(c, again)
	}
	r.Play()
	c.Found.Seen, c.Found.RankedMinimums = len(k.nodes.Touched), k.eval.SpreadMinimums(c)
	return r
}

// visitIndividual calls again for each node whose rank may differ from the fleet's trees, for some more than once.
func (k *rankings) visitIndividual(c *taskclass.Class, again func(slot int32)) {
	touched := k.nodes.Touched
	if len(touched) > k.nodes.Fleet.Names.Count/8 { // most entries would be repetitions
		touched = nil
		for slot := range k.nodes.OwnSlots {
			again(slot)
		}
	}
	for _, list := range [][]int32{touched, c.Excluded, c.Penalized, c.AffinityScored} {
		for _, slot := range list {
			again(slot)
		}
	}
	if c.Group.IsCounted {
		for slot := range c.Group.Nodes {
			again(slot)
		}
	}
	for slot := range c.Images.Visit {
		again(slot)
	}
	for slot := range c.SpreadScored {
		again(slot)
	}
	for i := range c.Relations {
		for slot := range c.Relations[i].Nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.Exclusions {
		for slot := range c.Exclusions[i].Nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.Distincts {
		for slot := range c.Distincts[i].View.Nodes { // order-free: each for itself
			again(slot)
		}
	}
}

// rankPage ranks the nodes of a page of the fleet: each by itself, or by its entry in the page.
func (k *rankings) rankPage(c *taskclass.Class, r *rank.Ranking, p *index.Page, class int32, each bool) {
	if p == nil {
		return
	}
	q, tier := index.Query{Need: c.Need}, k.eval.ClassTier(c, class)
	for i := range p.Children {
		k.rankPage(c, r, p.Children[i].Page, class, each)
	}
	for i := range p.Entries {
		en := &p.Entries[i]
		fill := en.Key & (1<<index.LevelShift - 1)
		switch {
		case !each && q.Fits(en.Free):
			r.Ranks[en.Slot] = rank.Rank{Tier: tier, Fill: k.eval.FillRank(c, class, fill, en.Key)}
		case each && k.eval.IsFeasible(c, en.Slot):
			r.Ranks[en.Slot] = k.eval.RankOf(c, en.Slot)
		}
	}
}

// refresh updates a class's ranking by the nodes touched since its last turn. A node that refused the class still
// refuses it, because usage only grows; only a rising minimum of a spread requires a new ranking.
func (k *rankings) refresh(c *taskclass.Class) {
	if k.eval.SpreadMinimums(c) != c.Found.RankedMinimums {
		k.spare = append(k.spare, c.Found.Ranking)
		c.Found.Ranking = k.rank(c)
		return
	}
	for _, slot := range k.nodes.Touched[c.Found.Seen:] {
		if c.Found.Ranking.Ranks[slot] == rank.Refused() {
			continue
		}
		if code, _ := k.eval.LoadRefusal(c, slot); code != "" {
			c.Found.Ranking.Set(slot, rank.Refused())
		} else {
			c.Found.Ranking.Set(slot, k.eval.RankOf(c, slot))
		}
	}
	c.Found.Seen = len(k.nodes.Touched)
}

func (k *rankings) spareOne() *rank.Ranking {
	if last := len(k.spare) - 1; last >= 0 {
		r := k.spare[last]
		k.spare = k.spare[:last]
		r.Clear()
		return r
	}
	return rank.NewRanking(k.nodes.Fleet.SlotCount(), k.nodes.Fleet.Names.Order)
}
