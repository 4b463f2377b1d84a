package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/store"
)

// proposerMachine is the machine of all external schedulers. Cuts and noise name it in their links ("x-s1"); a cut of
// the machine alone silences its schedulers.
const proposerMachine = "x"

// proposerName is the name of the external scheduler of a domain.
const proposerName = "tray"

// Modes of an external scheduler. Every scheduler is careful once faults have ended.
const (
	modeCareful   = "careful"
	modeSlow      = "slow"      // sends what it decided up to 15 s later
	modeSenseless = "senseless" // sends random commands, bases and revisions
	modeStubborn  = "stubborn"  // goes on with an old claim, and claims the domain back from other instances
)

// proposer is a process of the external scheduler of a domain. It claims the domain, polls the state, and proposes, all
// over the network, until it is killed or another instance has claimed the domain.
type proposer struct {
	fleet    *fleet
	domain   string
	instance string
	mode     string
	// byRecords says that it writes records in place of claims and proposals.
	byRecords bool

	// claimed is the revision of the domain's record as claimed, 0 without a claim. claims holds it and earlier ones.
	claimed uint64
	claims  []uint64
	// fenced is when the first proposal by the present claim was refused, zero while there is none.
	fenced time.Time
	state  proposerState
	// bases are the revisions of the state that were read.
	bases []string
}

// proposerState is what a scheduler knows of its domain.
type proposerState struct {
	base   string // the revision of the state, "" before the first
	nodes  map[string]*cluster.SchedulingNode
	groups map[string]*cluster.SchedulingGroup
	// refused holds, by task and node, until when a refusal keeps the task away. waits is since when a task fits
	// nowhere. cleared is when room was last made.
	refused map[[2]string]time.Time
	waits   map[cluster.TaskID]time.Time
	cleared time.Time
}

// startProposer starts a process of the external scheduler of a domain, or one that writes records, and returns what
// kills it.
func (f *fleet) startProposer(domain, mode string, byRecords bool) (kill func()) {
	f.proposers++
	p := &proposer{
		fleet: f, domain: domain, instance: name("process-", f.proposers), mode: mode, byRecords: byRecords,
		state: proposerState{refused: map[[2]string]time.Time{}, waits: map[cluster.TaskID]time.Time{}},
	}
	ctx, cancel := context.WithCancel(f.ctx)
	f.background.Go(func() { p.run(ctx) })
	return cancel
}

// hasProposers reports whether a domain has an external scheduler in the story.
func (s *Story) hasProposers(domain string) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Fault == Scheduler && e.Target == domain })
}

// domainScheduler returns the scheduler of a domain in its record; nil for the built-in one.
func (s *Story) domainScheduler(domain string) *cluster.DomainScheduler {
	switch {
	case s.hasRecordWriters(domain):
		return &cluster.DomainScheduler{Type: cluster.SchedulerKV}
	case s.hasProposers(domain):
		return s.externalScheduler()
	}
	return nil
}

// externalScheduler returns an external scheduler for the record of a domain.
func (s *Story) externalScheduler() *cluster.DomainScheduler {
	return &cluster.DomainScheduler{
		Type: cluster.SchedulerExternal, Name: proposerName,
		TakeOver: cluster.Duration([]time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second}[s.Seed/6%3]),
	}
}

// errFencedOff says that another instance of the scheduler holds the domain.
var errFencedOff = errors.New("another instance claimed the domain")

func (p *proposer) run(ctx context.Context) {
	for {
		d := p.fleet.random.roll(p.instance + ":turn")
		if pause.For(ctx, 300*time.Millisecond+d.span(time.Second)) != nil {
			return
		}
		err := p.turn(ctx)
		if errors.Is(err, errFencedOff) && p.modeNow() != modeStubborn {
			return
		}
	}
}

// modeNow returns the mode of the process.
func (p *proposer) modeNow() string {
	if p.fleet.calm.Load() {
		return modeCareful
	}
	return p.mode
}

// turn claims the domain if the process does not hold it, reads the state, and proposes what follows from it.
func (p *proposer) turn(ctx context.Context) error {
	if p.claimed == 0 && !p.byRecords {
		if err := p.claim(ctx); err != nil {
			return err
		}
	}
	s := p.fleet.leaderOf(p.domain)
	if s == nil {
		return nil
	}
	if err := p.read(ctx, s); err != nil && p.state.base == "" {
		return err
	}
	d := p.fleet.random.roll(p.instance + ":decide")
	var proposal cluster.Proposal
	switch mode := p.modeNow(); mode {
	case modeSenseless:
		proposal = p.makeSenseless(&d)
	default:
		proposal = cluster.Proposal{DomainRevision: p.claimed, Base: p.state.base}
		if p.state.base != "" {
			proposal.Commands = p.state.decide(time.Now())
		}
		if mode == modeSlow && pause.For(ctx, d.span(15*time.Second)) != nil {
			return ctx.Err()
		}
	}
	if p.byRecords {
		p.writeRecords(ctx, proposal.Commands, &d, p.modeNow() == modeSenseless)
		return nil
	}
	if err := proposal.Validate(); err != nil { // the API refuses it
		return err
	}
	return p.propose(ctx, s, &proposal, p.modeNow() == modeSenseless && d.below(8) == 0)
}

// claim claims the domain at a random server, as the API server does.
func (p *proposer) claim(ctx context.Context) error {
	d := p.fleet.random.roll(p.instance + ":claim")
	s := p.fleet.hosts[d.below(len(p.fleet.hosts))].liveServer()
	if s == nil {
		return errUndelivered
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	revision, err := call(ctx, p.fleet.net, proposerMachine, s.id, "claim", s,
		func(ctx context.Context) (uint64, error) { return s.claimDomain(ctx, p.domain, p.instance) })
	if err != nil {
		return err
	}
	p.claimed, p.fenced = revision, time.Time{}
	p.claims = append(p.claims, revision)
	return nil
}

// claimDomain makes an instance the scheduler of a domain, and returns the revision of the domain's record. A repeated
// claim changes nothing.
func (s *server) claimDomain(ctx context.Context, domain, instance string) (uint64, error) {
	key := prefix.Domain(domain)
	r, err := s.engine.Read(ctx, key)
	if err != nil {
		return 0, err
	}
	record, err := store.Decode[cluster.Domain](r.Value)
	if err != nil {
		return 0, err
	}
	claim := &cluster.SchedulerClaim{Holder: proposerName, Instance: instance, Since: s.host.wallClock().UTC()}
	switch {
	case record.External() == nil || record.External().Name != proposerName:
		return 0, fmt.Errorf("the domain %s has another scheduler", domain)
	case record.Claim != nil && record.Claim.IsSame(claim):
		return r.Modified, nil
	}
	record.Claim = claim
	value, err := store.Encode(record)
	if err != nil {
		panic(err) // a fault of the simulator
	}
	result, err := s.engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: r.Modified}}, Ops: []store.Op{{Key: key, Value: value}},
	}})
	switch {
	case err != nil:
		return 0, err
	case !result.Applied[0]:
		return 0, errors.New("the record of the domain changed meanwhile")
	}
	return result.Revision, nil
}

// read reads what changed in the state of the domain.
func (p *proposer) read(ctx context.Context, s *server) error {
	lines, err := call(ctx, p.fleet.net, proposerMachine, s.id, "state", s,
		func(ctx context.Context) (scheduling.Lines, error) {
			feed := s.planes[p.domain].SchedulingState()
			if feed == nil {
				return scheduling.Lines{}, scheduling.ErrNotLeading
			}
			defer feed.Open()()
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			for {
				lines := feed.Read(p.state.base)
				if lines.Revision != "" || lines.Ended {
					return lines, nil
				}
				select {
				case <-limited.Done():
					return lines, limited.Err()
				case <-lines.Changed:
				}
			}
		})
	if err != nil {
		return err
	}
	if lines.Revision != "" {
		p.state.learn(&lines)
		p.bases = append(p.bases, lines.Revision)
	}
	return nil
}

// propose sends a proposal to the leader, and learns from the answer.
func (p *proposer) propose(ctx context.Context, s *server, proposal *cluster.Proposal, dryRun bool) error {
	answer, err := call(ctx, p.fleet.net, proposerMachine, s.id, "propose", s,
		func(ctx context.Context) (cluster.ProposalAnswer, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			answer, err := s.planes[p.domain].Propose(ctx, &scheduling.Request{Proposal: proposal, DryRun: dryRun})
			if err == nil && !dryRun {
				p.fleet.checker.proposals.checkAnswer(p.domain, proposal, &answer)
			}
			return answer, err
		})
	if fenced, ok := errors.AsType[*scheduling.FencedError](err); ok && proposal.DomainRevision == p.claimed {
		return p.noteFenced(fenced)
	}
	if err != nil {
		return err
	}
	p.state.noteAnswer(proposal, &answer, time.Now())
	return nil
}

// noteFenced gives the claim up, so that the next turn claims the domain again. A stubborn process goes on with it for
// a while. An error says that another instance holds the domain.
func (p *proposer) noteFenced(by *scheduling.FencedError) error {
	now := time.Now()
	if p.fenced.IsZero() {
		p.fenced = now
	}
	if p.modeNow() == modeStubborn && now.Sub(p.fenced) < 8*time.Second {
		return nil
	}
	p.claimed = 0
	if c := by.Claim; c != nil && c.Holder == proposerName && c.Instance != p.instance {
		return errFencedOff
	}
	return nil
}

// changeDomain carries out an order for a domain.
func (u *user) changeDomain(ctx context.Context, e Event) {
	switch e.Arg {
	case "builtin":
		u.changeScheduler(ctx, e.Target, nil)
	case "external":
		u.changeScheduler(ctx, e.Target, u.fleet.story.domainScheduler(e.Target))
	default:
		u.fleet.checker.reportBreach("converges", "the story has the unknown event %q", e.String())
	}
}

// changeScheduler writes which scheduler a domain has, as the API server does: a changed one has no claim.
func (u *user) changeScheduler(ctx context.Context, domain string, next *cluster.DomainScheduler) {
	key := prefix.Domain(domain)
	for ctx.Err() == nil {
		d := u.fleet.random.roll("user")
		if s := u.fleet.hosts[d.below(len(u.fleet.hosts))].liveServer(); s != nil {
			limited, cancel := context.WithTimeout(ctx, 10*time.Second)
			done := s.setScheduler(limited, key, next)
			cancel()
			if done {
				return
			}
		}
		_ = pause.For(ctx, 300*time.Millisecond)
	}
}

// setScheduler writes the scheduler of a domain once, and reports whether the write was acknowledged. A domain without
// a record stays as it is.
func (s *server) setScheduler(ctx context.Context, key string, next *cluster.DomainScheduler) bool {
	r, err := s.engine.Read(ctx, key)
	if err != nil {
		return errors.Is(err, store.ErrNotFound)
	}
	record, err := store.Decode[cluster.Domain](r.Value)
	if err != nil {
		return true
	}
	if (record.Scheduler != nil) == (next != nil) {
		return true
	}
	record.Scheduler, record.Claim = next, nil
	value, err := store.Encode(record)
	if err != nil {
		panic(err) // a fault of the simulator
	}
	result, err := s.engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: r.Modified}}, Ops: []store.Op{{Key: key, Value: value}},
	}})
	return err == nil && result.Applied[0]
}

// learn takes lines of the state.
func (s *proposerState) learn(lines *scheduling.Lines) {
	if lines.Reset {
		s.nodes, s.groups = map[string]*cluster.SchedulingNode{}, map[string]*cluster.SchedulingGroup{}
	}
	s.base = lines.Revision
	for _, text := range lines.Texts {
		var l cluster.SchedulingLine
		if err := json.Unmarshal(text, &l); err != nil {
			panic(fmt.Sprintf("%s: %v", strings.TrimSpace(string(text)), err))
		}
		switch {
		case l.Node != nil:
			s.nodes[l.Node.Name] = l.Node
		case l.Group != nil:
			s.groups[l.Group.ID] = l.Group
		case l.RemovedNode != "":
			delete(s.nodes, l.RemovedNode)
		case l.RemovedGroup != "":
			delete(s.groups, l.RemovedGroup)
		}
	}
}
