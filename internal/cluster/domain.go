package cluster

import "time"

// DefaultDomain is the domain of nodes and clusters that name none. It exists without a record.
const DefaultDomain = "default"

// MaxDomains is the number of domains that may exist, the default domain included. Each costs every server a campaign
// and a copy of the leader's view.
const MaxDomains = 100

// Domain is a set of nodes and clusters with one leader of its own: the record domain/<name>. Writer: the user. The
// leader writes Claim alone, when its own scheduler takes over.
type Domain struct {
	Name string `json:"name"`
	// Pools names pools whose nodes belong to the domain. A node whose own settings name a domain belongs to that one.
	// A pool belongs to one domain at most.
	Pools []string `json:"pools,omitempty"`
	// Silence, unless nil, changes how long the domain's nodes may be silent.
	Silence *Silence `json:"silence,omitempty"`
	// Scheduler, unless nil, says who places the domain's tasks. Default: Berth's own scheduler.
	Scheduler *DomainScheduler `json:"scheduler,omitempty"`
	// Claim, unless nil, is the scheduler that last claimed the domain, or Berth's own if that took over. The servers
	// set it; a client's value is ignored.
	Claim *SchedulerClaim `json:"claim,omitempty"`
	// Projection says when each attempt has keys of its own in the store: state/<node>/<task> and state/<task>. Default
	// delayed; with a scheduler of the type kv it is immediate.
	Projection Projection `json:"projection,omitempty"`
	// RescheduleUntil lets tasks of silent nodes be replaced until then, although so many nodes fell silent that they
	// would not be replaced. The API server sets it; a client's value is ignored.
	RescheduleUntil time.Time `json:"reschedule_until,omitzero"`
	// Number identifies the domain, from 1; no other domain ever has it. For the default domain, it is the last number
	// that was given. The API server sets it; a client's value is ignored.
	Number uint64 `json:"number,omitempty"`
}

// Projection says when the attempts of a domain have keys of their own in the store.
type Projection string

// Values of Projection.
const (
	// ProjectionDelayed is some time after the placement, and never for attempts that end before (P3.4).
	ProjectionDelayed Projection = "delayed"
	// ProjectionImmediate is in the transaction of the placement.
	ProjectionImmediate Projection = "immediate"
)

// Values returns every Projection, in the order of the constants.
func (Projection) Values() []Projection { return []Projection{ProjectionDelayed, ProjectionImmediate} }

// Silence says how long nodes of a domain may be silent (P6.2). A silence counts from the heartbeat that the node
// promised. 0 means the default.
type Silence struct {
	// Suspect is the silence after which a node gets no new tasks. Default 20s.
	Suspect Duration `json:"suspect,omitempty"`
	// Down is the silence after which a node counts as down. Default 1m.
	Down Duration `json:"down,omitempty"`
	// Services is the silence after which tasks of services are replaced. Default 1m.
	Services Duration `json:"services,omitempty"`
	// Jobs is the silence after which tasks of jobs are lost. Default 5m.
	Jobs Duration `json:"jobs,omitempty"`
}

// The default limits of silence (P6.2).
const (
	DefaultSuspect      = Duration(20 * time.Second)
	DefaultDown         = Duration(time.Minute)
	DefaultServicesLost = Duration(time.Minute)
	DefaultJobsLost     = Duration(5 * time.Minute)
)

// The bounds of limits of silence. A shorter one would count a short pause of a network as a failure.
const (
	MinSilence = Duration(5 * time.Second)
	MaxSilence = Duration(24 * time.Hour)
)

// Limits returns the limits of silence with the defaults. s may be nil.
func (s *Silence) Limits() Silence {
	var l Silence
	if s != nil {
		l = *s
	}
	setDefault(&l.Suspect, DefaultSuspect)
	setDefault(&l.Down, max(DefaultDown, l.Suspect))
	setDefault(&l.Services, max(DefaultServicesLost, l.Suspect))
	setDefault(&l.Jobs, max(DefaultJobsLost, l.Suspect))
	return l
}

// SetDefaults changes nothing: a limit that is left out follows Berth's default.
func (*Domain) SetDefaults() {}

// Validate returns all faults of the domain as Faults, or nil.
func (d *Domain) Validate() error {
	k := newCheck()
	k.at("name").name(d.Name)
	seen := map[string]bool{}
	for i, p := range d.Pools {
		at := k.index("pools", i)
		at.name(p)
		at.must(!seen[p], "names the pool %s again", clip(p))
		seen[p] = true
	}
	d.Silence.validate(k.at("silence"))
	d.Scheduler.validate(k.at("scheduler"))
	if d.Projection != "" {
		oneOf(k.at("projection"), d.Projection)
	}
	k.at("projection").must(!d.HasKVScheduler() || d.Projection != ProjectionDelayed,
		"is delayed, and with a scheduler of the type kv it is immediate: leave it out")
	return k.err()
}

// validate checks the limits of silence. s may be nil.
func (s *Silence) validate(k check) {
	if s == nil {
		return
	}
	for _, f := range []struct {
		name  string
		limit Duration
	}{{"suspect", s.Suspect}, {"down", s.Down}, {"services", s.Services}, {"jobs", s.Jobs}} {
		k.at(f.name).must(f.limit == 0 || f.limit >= MinSilence && f.limit <= MaxSilence,
			"is %s, want %s to %s", f.limit, MinSilence, MaxSilence)
	}
	l := s.Limits()
	for _, f := range []struct {
		name  string
		limit Duration
	}{{"down", l.Down}, {"services", l.Services}, {"jobs", l.Jobs}} {
		k.at(f.name).must(f.limit >= l.Suspect, "is %s, and a node is suspect after %s: want at least as long",
			f.limit, l.Suspect)
	}
}

// planNumberBits is the number of bits of a plan's number below the domain's number. Together they stay below 2^53, so
// that readers of JSON with floating-point numbers lose nothing.
const planNumberBits = 40

// MaxDomainNumber is the largest number of a domain.
const MaxDomainNumber = 1<<(53-planNumberBits) - 1

// FirstPlan returns the lowest number of a plan record of the domain with the number. Its plans have the numbers from
// there up to, and without, FirstPlan of the next number. The lowest number itself is never used.
func FirstPlan(domain uint64) uint64 { return domain << planNumberBits }

// DomainOfPlan returns the number of the domain that a plan record belongs to.
func DomainOfPlan(seq uint64) uint64 { return seq >> planNumberBits }
