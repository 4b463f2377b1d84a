package cluster

import "time"

// SchedulerType is what places the tasks of a domain.
type SchedulerType string

// Types of schedulers.
const (
	// SchedulerBuiltin is Berth's own scheduler, in the leader of the domain.
	SchedulerBuiltin SchedulerType = "builtin"
	// SchedulerExternal is a program that reads the state of the domain and proposes placements, over HTTP.
	SchedulerExternal SchedulerType = "external"
	// SchedulerKV is any program that writes the records of tasks in the store (P3.9): see TaskCommand.
	SchedulerKV SchedulerType = "kv"
)

// Values returns every SchedulerType, in the order of the constants.
func (SchedulerType) Values() []SchedulerType {
	return []SchedulerType{SchedulerBuiltin, SchedulerExternal, SchedulerKV}
}

// BuiltinScheduler is the name of Berth's own scheduler. No other scheduler has it.
const BuiltinScheduler = "builtin"

// DomainScheduler is the scheduler that places the tasks of a domain.
type DomainScheduler struct {
	// Type says who places the tasks of the domain: Berth itself, a program outside of Berth, or commands in the
	// store.
	Type SchedulerType `json:"type"`
	// Name is the name of an external scheduler, which messages show.
	Name string `json:"name,omitempty"`
	// Token is the name of the access token of an external scheduler. Callers with a token of that name may claim the
	// domain and propose placements, whatever the role of the token. Operators may, too. Default: operators alone.
	Token string `json:"token,omitempty"`
	// TakeOver is the silence of an external scheduler after which Berth's own takes the domain over. Each proposal
	// ends a silence, also an empty one. Default 30s.
	TakeOver Duration `json:"take_over,omitempty"`
}

// DefaultTakeOver is the default of DomainScheduler.TakeOver.
const DefaultTakeOver = Duration(30 * time.Second)

// SchedulerClaim is the scheduler that places the tasks of a domain now, where the domain has an external one.
type SchedulerClaim struct {
	// Holder is the name of the scheduler: that of the domain, or builtin once Berth's own took over.
	Holder string `json:"holder"`
	// Instance tells several processes of one scheduler apart. Each claim names its own.
	Instance string `json:"instance,omitempty"`
	// Since is when the scheduler claimed the domain.
	Since time.Time `json:"since"`
	// By is the user that claimed the domain, as events name people.
	By string `json:"by,omitempty"`
	// Reason is why Berth's own scheduler took over.
	Reason string `json:"reason,omitempty"`
}

// IsSame reports whether two claims are of one instance of a scheduler, by one user.
func (c *SchedulerClaim) IsSame(o *SchedulerClaim) bool {
	return c.Holder == o.Holder && c.Instance == o.Instance && c.By == o.By
}

// External returns the external scheduler of the domain, nil if Berth's own is to place the tasks. d may be nil.
func (d *Domain) External() *DomainScheduler {
	if d == nil || d.Scheduler == nil || d.Scheduler.Type != SchedulerExternal {
		return nil
	}
	return d.Scheduler
}

// HasKVScheduler reports whether other programs place the tasks of the domain by records in the store. d may be nil.
func (d *Domain) HasKVScheduler() bool {
	return d != nil && d.Scheduler != nil && d.Scheduler.Type == SchedulerKV
}

// ProjectsAtOnce reports whether the attempts of the domain get keys of their own with their placement. d may be nil.
func (d *Domain) ProjectsAtOnce() bool {
	return d != nil && d.Projection == ProjectionImmediate || d.HasKVScheduler()
}

// TakenOver reports whether Berth's own scheduler took the domain over from its external one.
func (d *Domain) TakenOver() bool {
	return d.External() != nil && d.Claim != nil && d.Claim.Holder == BuiltinScheduler
}

// SchedulerName returns the name of the scheduler that places the domain's tasks now. d may be nil.
func (d *Domain) SchedulerName() string {
	switch s := d.External(); {
	case d.HasKVScheduler():
		return string(SchedulerKV)
	case s != nil && !d.TakenOver():
		return s.Name
	}
	return BuiltinScheduler
}

// TakeOverAfter returns the silence after which Berth's own scheduler takes over.
func (s *DomainScheduler) TakeOverAfter() time.Duration {
	if s.TakeOver == 0 {
		return time.Duration(DefaultTakeOver)
	}
	return time.Duration(s.TakeOver)
}

// validate checks the scheduler of a domain. s may be nil.
func (s *DomainScheduler) validate(k check) {
	if s == nil {
		return
	}
	oneOf(k.at("type"), s.Type)
	if s.Type != SchedulerExternal {
		const only = "is for a scheduler of the type external: leave it out, or write type: external"
		k.at("name").must(s.Name == "", only)
		k.at("token").must(s.Token == "", only)
		k.at("take_over").must(s.TakeOver == 0, only)
		return
	}
	k.at("name").name(s.Name)
	k.at("name").must(s.Name != BuiltinScheduler, "is %s, which is the name of Berth's own scheduler", s.Name)
	k.at("take_over").must(s.TakeOver == 0 || s.TakeOver >= MinSilence && s.TakeOver <= MaxSilence,
		"is %s, want %s to %s", s.TakeOver, MinSilence, MaxSilence)
}

// ProposalAction is what a command of a proposal asks for.
type ProposalAction string

// Actions of a proposal.
const (
	// ProposePlace starts a pending task on a node.
	ProposePlace ProposalAction = "place"
	// ProposeMove has a running task of a service continue on another node, as the budget of its service allows.
	ProposeMove ProposalAction = "move"
	// ProposeEvict ends the attempt of a running task, which then is pending again. A task of a service ends as the
	// budget of its service allows.
	ProposeEvict ProposalAction = "evict"
	// ProposeWait gives the reason why a pending task gets no place for now.
	ProposeWait ProposalAction = "wait"
)

// Values returns every ProposalAction, in the order of the constants.
func (ProposalAction) Values() []ProposalAction {
	return []ProposalAction{ProposePlace, ProposeMove, ProposeEvict, ProposeWait}
}

const (
	// MaxProposalCommands is the number of commands that one proposal may hold.
	MaxProposalCommands = 10_000
	// MaxProposalReason is the length of the reason of a command, in bytes.
	MaxProposalReason = 256
)

// Proposal is what an external scheduler asks of the leader of its domain.
type Proposal struct {
	// DomainRevision is the revision of the domain's record when the scheduler claimed it. Any change of the record
	// fences the scheduler off: another claim, the take-over by Berth's own scheduler, or another specification.
	DomainRevision uint64 `json:"domain_revision"`
	// Base is the revision of the state that the commands follow from, as the state names it. It may be empty if there
	// are no commands.
	Base string `json:"base,omitempty"`
	// Commands are at most MaxProposalCommands, and at most one for each task.
	Commands []ProposalCommand `json:"commands,omitempty"`
}

// ProposalCommand is one command of a proposal.
type ProposalCommand struct {
	Action ProposalAction `json:"action"`
	Task   TaskID         `json:"task"`
	// Node is the node for the task: of place and move alone.
	Node string `json:"node,omitempty"`
	// Attempt, unless 0, is the number of the pending attempt: of place alone. If the task waits for another attempt by
	// now, the command is stale.
	Attempt int `json:"attempt,omitempty"`
	// UUID identifies the running attempt: of move and evict alone.
	UUID string `json:"uuid,omitempty"`
	// Reason is for people: events and explanations show it.
	Reason string `json:"reason,omitempty"`
}

// ProposalResult is the answer to one command.
type ProposalResult struct {
	Task     TaskID `json:"task"`
	Accepted bool   `json:"accepted"`
	// UUID and Ports, of an accepted place, are the identity of the attempt and its ports on the node, by name.
	UUID  string         `json:"uuid,omitempty"`
	Ports map[string]int `json:"ports,omitempty"`
	// Code and Message are why the command was refused. The code is "stale" if the state has changed since the base,
	// and otherwise that of the scheduler's refusal.
	Code    ReasonCode `json:"code,omitempty"`
	Message string     `json:"message,omitempty"`
}

// ProposalAnswer answers a proposal. The results are in the order of the commands.
type ProposalAnswer struct {
	DryRun   bool             `json:"dry_run,omitempty"`
	Accepted int              `json:"accepted"`
	Refused  int              `json:"refused"`
	Results  []ProposalResult `json:"results,omitempty"`
}

// Validate returns all faults of the proposal as Faults, or nil.
func (p *Proposal) Validate() error {
	k := newCheck()
	k.at("commands").must(len(p.Commands) <= MaxProposalCommands, "has %d, want at most %d: send several proposals",
		len(p.Commands), MaxProposalCommands)
	k.at("base").must(p.Base != "" || len(p.Commands) == 0,
		"is missing: name the revision of the state that the commands follow from")
	seen := make(map[TaskID]bool, len(p.Commands))
	for i := range p.Commands[:min(len(p.Commands), MaxProposalCommands)] {
		p.Commands[i].validate(k.index("commands", i), seen)
	}
	return k.err()
}

func (c *ProposalCommand) validate(k check, seen map[TaskID]bool) {
	oneOf(k.at("action"), c.Action)
	_, ok := c.Task.Parts()
	k.at("task").must(ok, "%q is not the id of a task", clip(string(c.Task)))
	k.at("task").must(!seen[c.Task], "%s has several commands, want one", clip(string(c.Task)))
	seen[c.Task] = true
	switch c.Action {
	case ProposePlace, ProposeMove:
		k.at("node").must(ValidNodeName(c.Node), "%q is not the name of a node", clip(c.Node))
	case ProposeEvict, ProposeWait:
		k.at("node").must(c.Node == "", "is for place and move alone: leave it out")
	}
	switch c.Action {
	case ProposeMove, ProposeEvict:
		k.at("uuid").must(c.UUID != "" && len(c.UUID) <= maxProposalUUID,
			"is missing or too long: name the running attempt, as the state does")
	case ProposePlace, ProposeWait:
		k.at("uuid").must(c.UUID == "", "is for move and evict alone: leave it out")
	}
	k.at("attempt").must(c.Attempt == 0 || c.Action == ProposePlace && c.Attempt > 0,
		"is for place alone, and at least 1: leave it out")
	k.at("reason").must(len(c.Reason) <= MaxProposalReason, "has %d bytes, want at most %d", len(c.Reason),
		MaxProposalReason)
	k.at("reason").must(c.Reason != "" || c.Action != ProposeWait, "is missing: it is why the task waits")
	k.at("reason").must(printable(c.Reason), "holds control characters: want one line of text")
}

// maxProposalUUID bounds the identity of an attempt in a command, in bytes.
const maxProposalUUID = 64

// ClaimRequest asks for a domain with an external scheduler.
type ClaimRequest struct {
	// Name is the name of the scheduler, as the domain gives it.
	Name string `json:"name"`
	// Instance tells several processes of the scheduler apart: a claim of another one fences off the last. A repeated
	// claim of the same instance changes nothing. Without it, each claim fences off the last.
	Instance string `json:"instance,omitempty"`
}

// Validate returns all faults of the request as Faults, or nil.
func (r *ClaimRequest) Validate() error {
	k := newCheck()
	k.at("name").name(r.Name)
	k.at("instance").must(len(r.Instance) <= MaxProposalReason && printable(r.Instance),
		"is not one line of at most %d bytes", MaxProposalReason)
	return k.err()
}
