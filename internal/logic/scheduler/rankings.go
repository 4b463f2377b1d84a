package scheduler

import "github.com/berthd/berth/internal/cluster"

// rankings makes and updates the rankings of task classes. By the placements of a large class most nodes get individual
// scores; a ranking looks at each node once and then only at the touched ones.
type rankings struct {
	nodes *overlay
	eval  *evaluator
	spare []*ranking // for reuse
}

// rank makes a ranking of all nodes. It takes most ranks from the fleet's trees, and judges again the nodes that the
// cycle changed or that have individual scores.
func (k *rankings) rank(c *taskClass) *ranking {
	r := k.spareOne()
	s := c.filter
	order := byFill
	if c.strategy == cluster.StrategyWhole {
		order = byBalance
	}
	each := c.scansAll || len(c.devices.requests)+len(c.ports.fixed)+c.ports.auto+len(s.perNode) > 0
	for _, class := range s.feasible {
		p := k.nodes.fleet.catalog.trees[order][class].page
		k.rankPage(c, r, p, class, each || k.eval.valueModelApplies(c, class))
	}
	again := func(slot int32) {
		r.ranks[slot] = refused()
		if k.eval.isFeasible(c, slot) {
			r.ranks[slot] = k.eval.rankOf(c, slot)
		}
	}
	if !each {
		k.visitIndividual(c, again)
	}
	r.play()
	c.found.seen, c.found.rankedMinimums = len(k.nodes.touched), k.eval.spreadMinimums(c)
	return r
}

// visitIndividual calls again for each node whose rank may differ from the fleet's trees, for some more than once.
func (k *rankings) visitIndividual(c *taskClass, again func(slot int32)) {
	touched := k.nodes.touched
	if len(touched) > k.nodes.fleet.names.count/8 { // most entries would be repetitions
		touched = nil
		for slot := range k.nodes.ownSlots {
			again(slot)
		}
	}
	for _, list := range [][]int32{touched, c.excluded, c.penalized, c.affinityScored} {
		for _, slot := range list {
			again(slot)
		}
	}
	if c.group.isCounted {
		for slot := range c.group.nodes {
			again(slot)
		}
	}
	for slot := range c.images.visit {
		again(slot)
	}
	for slot := range c.spreadScored {
		again(slot)
	}
	for i := range c.relations {
		for slot := range c.relations[i].nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.exclusions {
		for slot := range c.exclusions[i].nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.distincts {
		for slot := range c.distincts[i].view.nodes { // order-free: each for itself
			again(slot)
		}
	}
}

// rankPage ranks the nodes of a page of the fleet: each by itself, or by its entry in the page.
func (k *rankings) rankPage(c *taskClass, r *ranking, p *page, class int32, each bool) {
	if p == nil {
		return
	}
	q, tier := query{need: c.need}, k.eval.classTier(c, class)
	for i := range p.children {
		k.rankPage(c, r, p.children[i].page, class, each)
	}
	for i := range p.entries {
		switch en := &p.entries[i]; {
		case !each && q.fits(en.free):
			r.ranks[en.slot] = rank{tier, k.eval.fillRank(c, class, en.key&(1<<levelShift-1), en.key)}
		case each && k.eval.isFeasible(c, en.slot):
			r.ranks[en.slot] = k.eval.rankOf(c, en.slot)
		}
	}
}

// refresh updates a class's ranking by the nodes touched since its last turn. A node that refused the class still
// refuses it, because usage only grows; only a rising minimum of a spread requires a new ranking.
func (k *rankings) refresh(c *taskClass) {
	if k.eval.spreadMinimums(c) != c.found.rankedMinimums {
		k.spare = append(k.spare, c.found.ranking)
		c.found.ranking = k.rank(c)
		return
	}
	for _, slot := range k.nodes.touched[c.found.seen:] {
		if c.found.ranking.ranks[slot] == refused() {
			continue
		}
		if code, _ := k.eval.loadRefusal(c, slot); code != "" {
			c.found.ranking.set(slot, refused())
		} else {
			c.found.ranking.set(slot, k.eval.rankOf(c, slot))
		}
	}
	c.found.seen = len(k.nodes.touched)
}

func (k *rankings) spareOne() *ranking {
	if last := len(k.spare) - 1; last >= 0 {
		r := k.spare[last]
		k.spare = k.spare[:last]
		r.clear()
		return r
	}
	return newRanking(k.nodes.fleet.slotCount(), k.nodes.fleet.names.order)
}
