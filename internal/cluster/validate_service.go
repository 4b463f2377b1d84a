package cluster

import (
	"math"
	"net/url"
	"strings"
	"time"
)

// Limits of how services change.
const (
	MaxGates        = 16
	MaxGateText     = 4096 // of a query, an expression or an address, in bytes
	MaxGateRequests = 1000
	// MaxDeadline bounds deadlines, staggers and windows.
	MaxDeadline = Duration(7 * 24 * time.Hour)

	MinGateInterval = Duration(time.Second)
	MaxGateInterval = Duration(time.Hour)

	MaxRescheduleLimit = 1000
	MaxScaleTargets    = 16
	MaxSchedules       = 32
)

// Validate returns all faults of the service as Faults, or nil. Omitted fields count with their defaults. It checks the
// service only.
func (s *Service) Validate() error {
	s = s.completed()
	k := newCheck()
	k.at("cluster").name(s.Cluster)
	k.at("name").name(s.Name)
	k.at("labels").labels(s.Labels)
	k.definition(s.Definition, s.Template)
	k.at("count").within(s.Count, 0, MaxCount)
	k.ownerNeeds(s.Needs, s.Owner())
	k.at("priority").within(int(s.Priority), 1, MaxPriority)
	k.at("placement").placement(s.Placement, s.Mode == ModeDaemon)
	oneOf(k.at("on_disconnect"), s.OnDisconnect)
	s.validateMode(k)
	s.validateKeepRoom(k.at("keep_room"))
	s.Update.validate(k.at("update"), s)
	s.Reschedule.validate(k.at("reschedule"))
	if s.Scaling != nil {
		s.Scaling.validate(k.at("scaling"))
	}
	return k.err()
}

// validateKeepRoom checks that it is known where the service keeps its room, and how much of it.
func (s *Service) validateKeepRoom(k check) {
	if !s.KeepRoom {
		return
	}
	k.must(s.BoundNode() != "", "needs the node on which the room is kept: add the constraint node.name = NODE to "+
		"placement.constraints")
	k.must(s.Mode != ModeDaemon && s.Count == 1 && s.Scaling == nil,
		"is for a service of one task: set count to 1, and leave out scaling and the mode daemon")
}

// validateMode checks the fields against the mode, and the count against the bounds of scaling.
func (s *Service) validateMode(k check) {
	oneOf(k.at("mode"), s.Mode)
	if s.Mode != ModeDaemon && s.OnViolation != "" {
		oneOf(k.at("on_violation"), s.OnViolation)
	}
	switch {
	case s.Mode == ModeDaemon:
		k.at("count").must(s.Count == 0,
			"is %d, but a daemon has one task on each node that its constraints allow: leave it out", s.Count)
		k.at("scaling").must(s.Scaling == nil,
			"is not for a daemon, which has one task on each node that its constraints allow")
		k.at("on_violation").must(s.OnViolation == "",
			"is not for a daemon, whose tasks end on nodes that its constraints no longer allow")
	case s.Scaling != nil && s.Scaling.Min <= s.Scaling.Max:
		k.at("count").must(s.Count >= s.Scaling.Min && s.Count <= s.Scaling.Max,
			"is %d, want a number within the bounds of scaling, from %d to %d", s.Count, s.Scaling.Min, s.Scaling.Max)
	}
}

func (u *Update) validate(k check, s *Service) {
	k.at("max_surge").portion(u.MaxSurge, 0, MaxCount)
	k.at("min_healthy").portion(u.MinHealthy, 0, 100)
	k.at("parallelism").portion(u.Parallelism, 1, 100)
	k.at("canaries").portion(u.Canaries, 0, 100)
	k.at("stagger").span(u.Stagger, 0, MaxDeadline)
	if u.Order != "" {
		oneOf(k.at("order"), u.Order)
	}
	u.validateRoom(k, s)
	k.at("healthy_deadline").span(u.HealthyDeadline, Duration(time.Second), MaxDeadline)
	k.at("progress_deadline").must(u.ProgressDeadline >= u.HealthyDeadline && u.ProgressDeadline <= 2*MaxDeadline,
		"is %s, want a duration from healthy_deadline, which is %s, to %s: a single task may take that long",
		u.ProgressDeadline, u.HealthyDeadline, 2*MaxDeadline)
	k.at("stagger").must(u.Stagger < u.ProgressDeadline,
		"is %s, want less than progress_deadline, which is %s: each rollout would fail while it waits", u.Stagger,
		u.ProgressDeadline)
	k.at("gates").must(len(u.Gates) <= MaxGates, "holds %d gates, at most %d are allowed", len(u.Gates), MaxGates)
	names := make([]string, len(u.Gates))
	for i := range u.Gates {
		names[i] = u.Gates[i].Name
		u.Gates[i].validate(k.index("gates", i))
	}
	k.unique("gates", names)
}

// maxCount returns the highest count of the service, 0 if it is not known.
func (s *Service) maxCount() int {
	switch {
	case s.Mode == ModeDaemon:
		return 0
	case s.Scaling != nil:
		return s.Scaling.Max
	}
	return s.Count
}

// wantsAll reports whether all tasks have to be healthy by the number that the policy names, and whether it is a share
// of them.
func (u *Update) wantsAll(s *Service) (number, share bool) {
	m := u.MinHealthy
	switch {
	case m == nil:
		return false, false
	case m.Percent:
		return false, m.N >= 100
	}
	return s.maxCount() > 0 && m.N >= s.maxCount(), false
}

// validateRoom checks that a task can be replaced at all.
func (u *Update) validateRoom(k check, s *Service) {
	number, all := u.wantsAll(s)
	none := u.MaxSurge != nil && u.MaxSurge.N == 0
	switch {
	case number && none:
		k.at("min_healthy").fault(
			"is %d of %d and max_surge is 0, so no task can be replaced: allow one more task with max_surge: "+
				"1, or one healthy task less with min_healthy: %d or none",
			u.MinHealthy.N, s.maxCount(), s.maxCount()-1)
	case number && u.Order == StopFirst:
		k.at("min_healthy").fault(
			"is %d of %d and the order stop-first gives up a healthy task first: use the order start-first, "+
				"or min_healthy: %d or none",
			u.MinHealthy.N, s.maxCount(), s.maxCount()-1)
	case all && none:
		k.at("min_healthy").fault(
			"is 100%% and max_surge is 0, so no task can be replaced: allow one more task with max_surge: 1, " +
				"or one healthy task less with a lower min_healthy or none")
	case all && u.Order == StopFirst:
		k.at("min_healthy").fault(
			"is 100%% and the order stop-first gives up a healthy task first: use the order start-first, or " +
				"a lower min_healthy or none")
	}
}

// portion checks a portion, unless it is nil. The bounds of a number are low and MaxCount, those of a percentage low
// and percent.
func (c check) portion(p *Portion, low, percent int) {
	switch {
	case p == nil:
	case p.Percent:
		c.must(p.N >= low && p.N <= percent, "is %d%%, want a share from %d%% to %d%%", p.N, low, percent)
	default:
		c.within(p.N, low, MaxCount)
	}
}

func (g *Gate) validate(k check) {
	k.at("name").name(g.Name)
	switch {
	case g.Prometheus == "" && g.Query == "" && g.HTTP == "":
		k.fault("has no source: want prometheus and query, or http")
	case g.HTTP != "":
		k.at("http").address(g.HTTP)
		k.at("prometheus").must(g.Prometheus == "", "is not for a gate that asks http: make it another gate")
		k.at("query").must(g.Query == "", "is not for a gate that asks http")
	default:
		k.at("prometheus").address(g.Prometheus)
		k.at("query").expression(g.Query)
	}
	if g.HTTP != "" || g.Pass != "" {
		k.at("pass").expression(g.Pass)
	} else {
		k.at("pass").fault("is missing: want an expression over value, such as \"value < 0.01\"")
	}
	k.at("interval").span(g.Interval, MinGateInterval, MaxGateInterval)
	k.at("passes").within(g.Passes, 1, MaxGateRequests)
	k.at("failures").within(g.Failures, 1, MaxGateRequests)
}

// expression demands a query or an expression.
func (c check) expression(s string) {
	switch {
	case strings.TrimSpace(s) == "":
		c.fault("is missing: want a query or an expression with one result")
	case len(s) > MaxGateText:
		c.fault("is %d bytes long, at most %d are allowed: shorten it", len(s), MaxGateText)
	default:
		c.must(printable(strings.NewReplacer("\n", " ", "\t", " ").Replace(s)), "is not printable text")
	}
}

// address requires a URL for HTTP requests. It is shown to all users of the service, so it holds no password.
func (c check) address(s string) {
	if s == "" {
		c.fault("is missing: want an address such as \"http://prometheus.example:9090\"")
		return
	}
	u, err := url.Parse(s)
	switch {
	case len(s) > MaxGateText || !printable(s) || strings.Contains(s, " "):
		c.fault("is not an address, but longer than %d bytes or not printable text without spaces", MaxGateText)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		// what it is may hold a password
		c.fault("is not an address: want \"http://\" or \"https://\", a host, and a path if there is one")
	case u.User != nil:
		c.fault("holds a user or a password, which every reader of the service would see: use " +
			"a proxy that adds them")
	case u.Fragment != "":
		c.fault("holds a \"#\": leave out the part from there on, which is never sent")
	}
}

func (r *Reschedule) validate(k check) {
	k.at("limit").within(r.Limit, 0, MaxRescheduleLimit)
	k.at("window").span(r.Window, Duration(time.Second), MaxDeadline)
	k.at("max_delay").span(r.MaxDelay, Duration(time.Millisecond), MaxDeadline)
	k.at("delay").must(r.Delay >= Duration(time.Millisecond) && r.Delay <= r.MaxDelay,
		"is %s, want a duration from 1ms to max_delay, which is %s", r.Delay, r.MaxDelay)
}

func (s *Scaling) validate(k check) {
	k.at("min").within(s.Min, 0, MaxCount)
	k.at("max").must(s.Max >= max(1, s.Min) && s.Max <= MaxCount,
		"is %d, want a number from min, which is %d, to %d, and not 0", s.Max, s.Min, MaxCount)
	k.must(len(s.Targets)+len(s.Schedules) > 0, "holds neither targets nor schedules: nothing would change the count")
	k.at("targets").must(len(s.Targets) <= MaxScaleTargets, "holds %d targets, at most %d are allowed", len(s.Targets),
		MaxScaleTargets)
	wakes := len(s.Targets) == 0 || len(s.Schedules) > 0
	for i := range s.Targets {
		s.Targets[i].validate(k.index("targets", i))
		wakes = wakes || s.Targets[i].Metric == ScalePrometheus
	}
	k.at("min").must(s.Min != 0 || wakes,
		"is 0, and a service without tasks has no usage that could raise its count again: want at least 1, a target "+
			"of prometheus, or a schedule")
	s.Up.validate(k.at("up"))
	s.Down.validate(k.at("down"))
	k.at("schedules").must(len(s.Schedules) <= MaxSchedules, "holds %d schedules, at most %d are allowed",
		len(s.Schedules), MaxSchedules)
	for i := range s.Schedules {
		s.Schedules[i].validate(k.index("schedules", i), s)
	}
}

func (t *ScaleTarget) validate(k check) {
	k.at("target").must(t.Target > 0 && t.Target <= math.MaxInt64, "is %v, want a number of more than 0", t.Target)
	if !oneOf(k.at("metric"), t.Metric) {
		return
	}
	if t.Metric == ScaleRequests {
		k.at("port").must(t.Port == "" || ValidName(t.Port), "%q is not the name of a port", clip(t.Port))
		k.at("path").must(strings.HasPrefix(t.Path, "/") && len(t.Path) <= MaxGateText && printable(t.Path) &&
			!strings.Contains(t.Path, " "),
			"%q is not a path: want it to begin with \"/\" and to hold no spaces", clip(t.Path))
		k.at("series").must(validSeries(t.Series),
			"%q is not the name of a series: want letters, digits, \"_\" and \":\", and no digit first", clip(t.Series))
	} else {
		k.at("port").must(t.Port == "", "is for the metric requests only: leave it out")
		k.at("path").must(t.Path == "", "is for the metric requests only: leave it out")
		k.at("series").must(t.Series == "", "is for the metric requests only: leave it out")
	}
	if t.Metric == ScalePrometheus {
		k.at("url").address(t.URL)
		k.at("query").expression(t.Query)
	} else {
		k.at("url").must(t.URL == "", "is for the metric prometheus only: leave it out")
		k.at("query").must(t.Query == "", "is for the metric prometheus only: leave it out")
		k.at("whole").must(!t.Whole, "is for the metric prometheus only: leave it out")
	}
}

// validSeries reports whether s names a series in Prometheus' text format.
func validSeries(s string) bool {
	letters := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:") == ""
	return letters && s != "" && len(s) <= MaxLabel && (s[0] < '0' || s[0] > '9')
}

func (p *ScalePace) validate(k check) {
	if p.Window != nil {
		k.at("window").span(*p.Window, 0, MaxDeadline)
	}
	k.at("step").portion(p.Step, 1, 10_000)
	if p.Step != nil {
		k.at("every").span(p.Every, Duration(time.Second), MaxDeadline)
	} else {
		k.at("every").must(p.Every == 0, "needs step, which is missing")
	}
}

// validate checks the numbers; package timetable reads Cron and Zone.
func (c *ScaleSchedule) validate(k check, s *Scaling) {
	low, high := s.Min, s.Max
	k.must(c.Min != nil || c.Max != nil || c.Count != nil, "sets nothing: want min, max or count")
	if c.Min != nil {
		low = *c.Min
		k.at("min").within(low, 0, MaxCount)
	}
	if c.Max != nil {
		high = *c.Max
		k.at("max").within(high, 0, MaxCount)
	}
	if (c.Min != nil || c.Max != nil) && low > high {
		k.fault("leaves no room: min would be %d and max %d; set both", low, high)
		return
	}
	if c.Count != nil {
		k.at("count").must(*c.Count >= low && *c.Count <= high,
			"is %d, but the bounds then are %d and %d: set min and max of the schedule, too", *c.Count, low, high)
	}
}

// CheckDefinition returns as Faults the settings of the service that its definition does not allow.
func (s *Service) CheckDefinition(d *TaskDefinition) error {
	k := newCheck()
	if s.Update.Order == StartFirst {
		for i := range d.Ports {
			if p := &d.Ports[i]; p.Port != 0 {
				k.at("update").at("order").fault(
					"is start-first, but the port %q of %s is %d on every node, and two tasks cannot listen there: "+
						"use stop-first, or leave the port's number out so that one is assigned", p.Name, d.Ref(),
					p.Port)
				break
			}
		}
	}
	if number, share := s.Update.wantsAll(s); (number || share) && s.Update.Order == "" && d.Pinned() {
		k.at("update").at("min_healthy").fault(
			"is %s, all of the tasks, but two tasks of %s cannot live on a node, for its fixed port or its "+
				"volume, so a healthy one is given up first: allow one healthy task less with a lower "+
				"min_healthy or none%s",
			s.Update.MinHealthy, d.Ref(), d.otherOrder())
	}
	if s.Scaling == nil {
		return k.err()
	}
	demand := d.Demand()
	for i := range s.Scaling.Targets {
		t, at := &s.Scaling.Targets[i], k.at("scaling").index("targets", i)
		switch {
		case t.Metric == ScaleCPU:
			at.at("metric").must(demand.CPU > 0,
				"is cpu, in percent of what is reserved, and %s reserves none: set resources.cpu", d.Ref())
		case t.Metric == ScaleMemory:
			at.at("metric").must(demand.Memory > 0,
				"is memory, in percent of what is reserved, and %s reserves none: set resources.memory", d.Ref())
		case t.Metric == ScaleRequests && t.Port != "":
			at.at("port").must(d.port(t.Port) != nil, "%q is not the name of a port of %s", clip(t.Port), d.Ref())
		case t.Metric == ScaleRequests:
			at.at("port").must(len(d.Ports) > 0, "is missing, and %s has no port where requests could be counted",
				d.Ref())
		}
	}
	return k.err()
}

// otherOrder is the way out, as the end of a sentence, that a definition has whose volumes alone keep two tasks from a
// node.
func (d *TaskDefinition) otherOrder() string {
	for _, p := range d.Ports {
		if p.Port != 0 {
			return ""
		}
	}
	return ", or use the order start-first"
}
