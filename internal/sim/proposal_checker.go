package sim

import (
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// proposalChecker checks that nothing is carried out that a fenced claim proposed: the record of the domain has the
// revision of the claim when a proposed attempt is placed, and when an attempt has to leave by a proposal.
type proposalChecker struct {
	*observation
	// placedIn and leavesIn are the revisions of the domain's record when an attempt was placed, and when it was told
	// to leave by a command, by UUID. They are noted in stories with external schedulers alone.
	placedIn, leavesIn map[string]uint64
	// commanded holds the claims whose proposals had an attempt leave, by UUID.
	commanded map[string]uint64
}

func newProposalChecker(o *observation) *proposalChecker {
	return &proposalChecker{
		observation: o, placedIn: map[string]uint64{}, leavesIn: map[string]uint64{}, commanded: map[string]uint64{},
	}
}

// notePlacement takes note of an attempt that a domain placed.
func (v *proposalChecker) notePlacement(uuid, domain string) {
	if v.story.hasProposers(domain) {
		v.placedIn[uuid] = v.records["domain/"+domain].Modified
	}
}

// noteLeave takes note of the stop or the outcome of an attempt. Its message says whether a scheduler proposed it.
func (v *proposalChecker) noteLeave(uuid string, o cluster.OwnerRef, message string) {
	if !strings.HasPrefix(message, "the scheduler "+proposerName+" ") {
		return
	}
	if _, known := v.leavesIn[uuid]; known {
		return
	}
	v.leavesIn[uuid] = v.records["domain/"+domainOfCluster(o.Cluster)].Modified
	v.checkLeave(uuid)
}

// checkAnswer checks the answer to a proposal.
func (v *proposalChecker) checkAnswer(domain string, p *cluster.Proposal, answer *cluster.ProposalAnswer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range answer.Results {
		r, c := &answer.Results[i], &p.Commands[i]
		if !r.Accepted {
			continue
		}
		switch c.Action {
		case cluster.ProposePlace:
			v.actions.Proposed++
			if in, known := v.placedIn[r.UUID]; (!known || in != p.DomainRevision) && !v.restored {
				v.breach("claim-fenced", "%s was placed by a proposal of the claim %d, and the record of the domain "+
					"%s had the revision %d", r.Task, p.DomainRevision, domain, in)
			}
		case cluster.ProposeMove, cluster.ProposeEvict:
			v.actions.Departures++
			v.commanded[c.UUID] = p.DomainRevision
			v.checkLeave(c.UUID)
		case cluster.ProposeWait:
		}
	}
}

// checkLeave checks an attempt that has to leave by a command, once the command and the stop are known.
func (v *proposalChecker) checkLeave(uuid string) {
	claim, commanded := v.commanded[uuid]
	in, leaves := v.leavesIn[uuid]
	if commanded && leaves && in != claim && !v.restored {
		v.breach("claim-fenced", "an attempt leaves by a proposal of the claim %d, and the record of the domain had "+
			"the revision %d: %s", claim, in, uuid)
	}
}

// domainOfCluster returns the domain of a cluster of the fleet.
func domainOfCluster(name string) string {
	if name == otherCluster {
		return otherDomain
	}
	return cluster.DefaultDomain
}

// noteDomain counts the domains that were taken over.
func (v *proposalChecker) noteDomain(c *store.Change, was store.Record) {
	now, err := store.Decode[cluster.Domain](c.Value)
	before, bad := store.Decode[cluster.Domain](was.Value)
	if !c.Deleted && err == nil && bad == nil && now.TakenOver() && !before.TakenOver() {
		v.actions.TakeOvers++
	}
}
