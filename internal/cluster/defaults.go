package cluster

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Defaults of a definition's spans and numbers.
const (
	DefaultGrace          = Duration(10 * time.Second)
	DefaultShutdownDelay  = Duration(time.Second)
	DefaultMinHealthyTime = Duration(time.Second)
	DefaultTmpfs          = 64 * MiB
	DefaultFileMode       = "0644"
	DefaultCheckInterval  = Duration(5 * time.Second)
	DefaultCheckTimeout   = Duration(2 * time.Second)
	DefaultFailAfter      = 3
	DefaultRestartLimit   = 5
	DefaultRestartWindow  = Duration(10 * time.Minute)
	DefaultRestartDelay   = Duration(time.Second)
	DefaultRestartMax     = Duration(time.Minute)
)

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (c *Cluster) SetDefaults() {
	setDefault(&c.Domain, DefaultDomain)
	setDefault(&c.KeepJobs, DefaultKeepJobs)
	setOps(c.Constraints)
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (h *Host) SetDefaults() {
	for i := range h.Taints {
		setDefault(&h.Taints[i].Effect, TaintNoSchedule)
	}
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (s *Service) SetDefaults() {
	setDefault(&s.Cluster, DefaultCluster)
	setDefault(&s.Priority, DefaultPriority)
	setDefault(&s.OnDisconnect, DisconnectKeep)
	setDefault(&s.Mode, ModeReplicas)
	s.Template.setDefaults(inlineName(s.Cluster, s.Name, ""))
	s.Placement.setDefaults(AntiAffinityPrefer)
	s.Update.setDefaults()
	s.Reschedule.setDefaults()
	if s.Scaling != nil {
		s.Scaling.setDefaults()
		if s.Mode != ModeDaemon {
			setDefault(&s.Count, max(0, s.Scaling.Min))
		}
	}
}

// setDefaults leaves out the defaults that depend on the definition, see Limits. If only one of the two deadlines is
// set, it may move the default of the other, so that both take effect.
func (u *Update) setDefaults() {
	setDefault(&u.ProgressDeadline,
		max(DefaultProgressDeadline, u.HealthyDeadline, u.Stagger+max(u.HealthyDeadline, DefaultHealthyDeadline)))
	setDefault(&u.HealthyDeadline, min(DefaultHealthyDeadline, u.ProgressDeadline))
	for i := range u.Gates {
		g := &u.Gates[i]
		if g.HTTP != "" {
			setDefault(&g.Pass, DefaultGatePass)
		}
		setDefault(&g.Interval, DefaultGateInterval)
		setDefault(&g.Passes, 1)
		setDefault(&g.Failures, DefaultGateFailures)
	}
}

func (r *Reschedule) setDefaults() {
	setDefault(&r.Window, DefaultRescheduleWindow)
	setDefault(&r.MaxDelay, max(DefaultRescheduleMax, r.Delay))
	setDefault(&r.Delay, min(DefaultRescheduleDelay, r.MaxDelay))
}

// setDefaults leaves out the windows, whose 0 is not the default; see ScalePace.
func (s *Scaling) setDefaults() {
	for i := range s.Targets {
		if t := &s.Targets[i]; t.Metric == ScaleRequests {
			setDefault(&t.Path, DefaultRequestsPath)
			setDefault(&t.Series, DefaultRequestsSeries)
		}
	}
	for _, p := range []*ScalePace{&s.Up, &s.Down} {
		if p.Step != nil {
			setDefault(&p.Every, DefaultScaleEvery)
		}
	}
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (c *Cron) SetDefaults() {
	setDefault(&c.Cluster, DefaultCluster)
	setDefault(&c.Concurrency, CronForbid)
	setDefault(&c.Missed, CronOnce)
	setDefault(&c.Within, DefaultCronWithin)
	for _, keep := range []**int{&c.KeepSucceeded, &c.KeepFailed} {
		if *keep == nil {
			*keep = new(int)
			**keep = DefaultCronKeep
		}
	}
	setDefault(&c.Job.Priority, DefaultPriority)
	stepDefaults(c.Cluster, c.Name, c.Job.Steps)
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (j *Job) SetDefaults() {
	setDefault(&j.Cluster, DefaultCluster)
	setDefault(&j.Priority, DefaultPriority)
	stepDefaults(j.Cluster, j.Name, j.Steps)
}

func stepDefaults(cluster, owner string, steps []Step) {
	firsts := firstOfTemplates(steps)
	for i := range steps {
		s := &steps[i]
		s.Template.setDefaults(inlineName(cluster, owner, steps[firsts(i)].Name))
		setDefault(&s.Count, max(1, min(s.Parameters.Tasks(), MaxCount)))
		if len(s.Needs) > 0 {
			setDefault(&s.Requires, RequireCompleted)
		}
		if s.Retries > 0 || s.Idempotent {
			setDefault(&s.OnDisconnect, DisconnectKeep)
		}
		setDefault(&s.OnDisconnect, DisconnectWait)
		s.Placement.setDefaults(AntiAffinityNone)
	}
}

// firstOfTemplates returns a function from each step to the first step that shares its template, which is the step
// itself in jobs of up to MaxTemplates steps. In larger ones, templates of one content without a name share a
// definition.
func firstOfTemplates(steps []Step) func(step int) int {
	if len(steps) <= MaxTemplates {
		return func(step int) int { return step }
	}
	firsts := make([]int, len(steps))
	known := map[string]int{} // by content
	for i := range steps {
		firsts[i] = i
		if t := steps[i].Template; t != nil && t.Name == "" {
			content := t.content()
			if first, ok := known[content]; ok {
				firsts[i] = first
			} else {
				known[content] = i
			}
		}
	}
	return func(step int) int { return firsts[step] }
}

// content returns the definition as a key of a map.
func (d *InlineDefinition) content() string {
	text, _ := json.Marshal(d) // definitions always marshal
	return string(text)
}

// setDefaults leaves the strategy open: the pool, the cluster and then the scheduler decide.
func (p *Placement) setDefaults(anti AntiAffinity) {
	setDefault(&p.AntiAffinity, anti)
	setOps(p.Constraints)
	for i := range p.Affinities {
		setDefault(&p.Affinities[i].Op, OpEqual)
		setDefault(&p.Affinities[i].Weight, DefaultWeight)
	}
	for i := range p.Spread {
		setDefault(&p.Spread[i].Weight, DefaultWeight)
	}
	for i := range p.Relations {
		r := &p.Relations[i]
		setDefault(&r.Attribute, "node.name")
		if !r.Required {
			setDefault(&r.Weight, DefaultWeight)
		}
	}
	for i := range p.Distinct {
		setDefault(&p.Distinct[i].Most, 1)
	}
}

// copied returns the placement with lists of its own where defaults are filled in; the rest is shared.
func (p Placement) copied() Placement {
	p.Constraints = slices.Clone(p.Constraints)
	p.Affinities = slices.Clone(p.Affinities)
	p.Spread = slices.Clone(p.Spread)
	p.Relations = slices.Clone(p.Relations)
	p.Distinct = slices.Clone(p.Distinct)
	return p
}

func setOps(constraints []Constraint) {
	for i := range constraints {
		setDefault(&constraints[i].Op, OpEqual)
	}
}

// SetDefaults fills in the fields that the user left out, but for Restart.Mode, which depends on the owner (see
// Restart.For). It is idempotent.
func (d *TaskDefinition) SetDefaults() {
	setDefault(&d.Grace, DefaultGrace)
	setDefault(&d.MinHealthyTime, DefaultMinHealthyTime)
	setDefault(&d.Restart.Limit, DefaultRestartLimit)
	setDefault(&d.Restart.Window, DefaultRestartWindow)
	setDefault(&d.Restart.MaxDelay, max(DefaultRestartMax, d.Restart.Delay))
	setDefault(&d.Restart.Delay, min(DefaultRestartDelay, d.Restart.MaxDelay))
	for i := range d.Containers {
		c := &d.Containers[i]
		if c.Image != "" {
			setDefault(&c.Pull, PullMissing)
		}
		for k := range c.Tmpfs {
			setDefault(&c.Tmpfs[k].Size, DefaultTmpfs)
		}
		for k := range c.Files {
			setDefault(&c.Files[k].Mode, DefaultFileMode)
		}
		for k := range c.Resources.Devices {
			setDefault(&c.Resources.Devices[k].Type, DefaultDeviceType)
			setDefault(&c.Resources.Devices[k].Count, 1)
		}
		c.secretDefaults()
		c.serviceDefaults()
		c.artifactDefaults()
	}
	d.nameChecks()
	for i := range d.Checks {
		d.Checks[i].setDefaults(d)
	}
	for i := range d.Discovery.Consul {
		d.Discovery.Consul[i].setDefaults(d)
	}
}

// nameChecks names checks without a name by their type: "http", "http-2".
func (d *TaskDefinition) nameChecks() {
	taken := make(map[string]bool, len(d.Checks))
	for i := range d.Checks {
		taken[d.Checks[i].Name] = true
	}
	for i := range d.Checks {
		c := &d.Checks[i]
		if c.Name != "" || c.Type == "" {
			continue
		}
		name := string(c.Type)
		for n := 2; taken[name]; n++ {
			name = string(c.Type) + "-" + strconv.Itoa(n)
		}
		c.Name, taken[name] = name, true
	}
}

// completed returns a copy with the defaults filled in, for validation; the rest is shared.
func (c *Cluster) completed() *Cluster {
	full := *c
	full.Constraints = slices.Clone(c.Constraints)
	full.SetDefaults()
	return &full
}

func (h *Host) completed() *Host {
	full := *h
	full.Taints = slices.Clone(h.Taints)
	full.SetDefaults()
	return &full
}

func (s *Service) completed() *Service {
	full := *s
	full.Template = s.Template.copied()
	full.Placement = s.Placement.copied()
	full.Update.Gates = slices.Clone(s.Update.Gates)
	if s.Scaling != nil {
		scaling := *s.Scaling
		scaling.Targets = slices.Clone(s.Scaling.Targets)
		full.Scaling = &scaling
	}
	full.SetDefaults()
	return &full
}

func (j *Job) completed() *Job {
	full := *j
	full.Steps = cloneSteps(j.Steps)
	full.SetDefaults()
	return &full
}

func (c *Cron) completed() *Cron {
	full := *c
	full.Job.Steps = cloneSteps(c.Job.Steps)
	full.SetDefaults()
	return &full
}

func cloneSteps(steps []Step) []Step {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Template = steps[i].Template.copied()
		steps[i].Placement = steps[i].Placement.copied()
	}
	return steps
}

func (d *TaskDefinition) completed() *TaskDefinition {
	full := d.copied()
	full.SetDefaults()
	return full
}

// copied returns a copy whose defaults can be set without changing d; the rest is shared.
func (d *TaskDefinition) copied() *TaskDefinition {
	full := *d
	full.Checks, full.Discovery.Consul = slices.Clone(d.Checks), slices.Clone(d.Discovery.Consul)
	full.Containers = slices.Clone(d.Containers)
	for i := range full.Containers {
		c := &full.Containers[i]
		c.Tmpfs, c.Files = slices.Clone(c.Tmpfs), slices.Clone(c.Files)
		c.Resources.Devices = slices.Clone(c.Resources.Devices)
		c.Secrets, c.Services, c.Artifacts = slices.Clone(c.Secrets), slices.Clone(c.Services),
			slices.Clone(c.Artifacts)
	}
	return &full
}

// Main returns the first essential container, the default wherever no container is named, or nil.
func (d *TaskDefinition) Main() *Container {
	for i := range d.Containers {
		if c := &d.Containers[i]; !c.Init && !c.Optional {
			return c
		}
	}
	return nil
}

// For returns the policy with its mode filled in: always for tasks of services, never for tasks of jobs.
func (r Restart) For(owner Kind) Restart {
	if owner == KindJob {
		setDefault(&r.Mode, RestartNever)
	}
	setDefault(&r.Mode, RestartAlways)
	return r
}

// Batch reports whether the owner's tasks run to success.
func (o OwnerRef) Batch() bool { return o.Kind == KindJob }
