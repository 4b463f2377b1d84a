// Package scaler decides how many tasks a service has if its count follows its load or the clock.
//
// A decision is a function of values. The caller measures, looks up the moments of the schedules, remembers the
// returned estimates, and writes the returned record. The count obeys these rules, the first one first:
//
//  0. An obstacle to growth: the count never grows, even if it is below Min.
//  1. The bounds in force: Min and Max of the scaling or of a schedule.
//  2. A schedule's own count, once for each of its moments.
//  3. The targets. Each computes the load in tasks, and the highest load counts. A load within Tolerance of the count's
//     capacity changes nothing. An unknown metric never shrinks the count, and never grows it. Tasks without a
//     measurement count as idle for growth and as busy for shrinking.
//  4. The windows: of the estimates within a window, the lowest one to grow, the highest one to shrink.
//  5. The pace: at most Step within Every.
//
// A count that the user changed or a schedule set starts afresh: earlier estimates and changes no longer count.
package scaler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Tolerance is the greatest difference between the load and the count's capacity that changes nothing, as a share of
// the capacity.
const Tolerance = 0.1

// MaxAge is the greatest age of a measurement; an older one counts as unknown.
const MaxAge = 3 * time.Minute

// EventScaled is the type of the event of a change.
const EventScaled = "service.scaled"

// Input holds everything that a decision about a service's count depends on. Decide does not change it.
type Input struct {
	// Spec is the service as the user wrote it, with defaults filled in; it is not the result of Service.At.
	Spec *cluster.Service
	// Scale is the newest record, nil for none.
	Scale *cluster.Scale
	// Measured holds a value for each of Spec.Scaling.Targets, in their order. A missing value is unknown.
	Measured []Measured
	// Estimates are the estimates of earlier decisions about the service, in any order. A new caller, such as a new
	// leader, has none. The count then stays for a window's length, as if it had been estimated now.
	Estimates []Estimate
	// Fired holds, for each of Spec.Scaling.Schedules, its newest moment up to Now, zero for none.
	Fired []time.Time
	// GrowthObstacle says why the count may not grow, empty if it may. A moment of a schedule that would make it grow
	// passes without effect.
	GrowthObstacle string
	Now            time.Time
}

// Measured is the value of one target's metric.
type Measured struct {
	// Value is, for cpu and memory, a task's use in percent of its reservation, and for requests the number that a task
	// answers in a second. Both are means of Tasks tasks. For prometheus Value is the answer, undivided.
	Value float64
	// Known is false if nothing was measured.
	Known bool
	// At is the time of the measurement; zero means now.
	At time.Time
	// Tasks is the number of running tasks of the service that were measured. It is unused for prometheus.
	Tasks int
}

// Estimate is the count that the metrics need at one time, before windows, pace and bounds.
type Estimate struct {
	At    time.Time
	Count int
}

// Decision is the result for an Input.
type Decision struct {
	// Scale is the record to write, nil if the last one stays.
	Scale *cluster.Scale
	// Estimate must be remembered by the caller for as long as Keep says. An estimate without a time is none.
	Estimate Estimate
	// NextDecision is the time at which a window or the pace may release a held change, zero for none. The caller
	// decides again then, at each next moment of a schedule, and after each measurement.
	NextDecision time.Time
	// Message describes the load and its consequence, empty if the service is not scaled.
	Message string
	// Event reports a change of the count, nil for none.
	Event *cluster.Event
}

// Keep returns how long estimates must be remembered: the longer of the service's two windows.
func Keep(s *cluster.Scaling) time.Duration {
	return max(window(s.Up, 0), window(s.Down, cluster.DefaultScaleDownWindow))
}

// Decide returns the decision for the input. It leaves a service alone if the service has no scaling, is a daemon, is
// stopped or deleted, or has suspended scaling.
func Decide(in Input) Decision {
	s := in.Spec
	switch {
	case s.Scaling == nil || s.Mode == cluster.ModeDaemon || s.Stopped || s.Deleted:
		return Decision{}
	case s.Scaling.Suspended:
		return Decision{Message: "suspended: the count stays where it is"}
	}
	e := newEvaluation(in)            // 1. the present count
	e.applySchedules()                // 2. the bounds in force, and a count that a schedule sets
	want, seen := e.evaluateTargets() // 3. the count that the metrics need
	next := e.applyWindows(want)      // 4. whether they needed it long enough
	next = e.applyPace(next)          // 5. how fast the count may change
	return e.finish(want, next, seen)
}

// evaluation is the state of one decision about a service's count.
type evaluation struct {
	in             *Input
	scaling        *cluster.Scaling
	rec            cluster.Scale // the new record
	recordChanged  bool          // the record differs from the given one, whatever the count
	count          int           // the present count
	low            int           // bounds in force
	high           int
	estimatesSince time.Time // earlier estimates do not count
	setBySchedule  string    // expression of the schedule that sets the count now
	estimate       Estimate
	heldBy         string    // what delays a change
	heldUntil      time.Time // when the delay may end
}

// newEvaluation determines the present count. A count that the user changed starts afresh.
func newEvaluation(in Input) *evaluation {
	s := in.Spec
	e := &evaluation{in: &in, scaling: s.Scaling, rec: cluster.Scale{Count: s.Count, From: s.Count}}
	switch {
	case in.Scale == nil:
	case in.Scale.From == s.Count:
		e.rec = *in.Scale
	default:
		e.recordChanged = true
		e.rec.Fired = in.Scale.Fired
		e.rec.At = in.Now
		e.rec.Message = fmt.Sprintf("the count was set to %d", s.Count)
	}
	e.count = e.rec.Count
	if !s.Updated.After(in.Now) {
		e.estimatesSince = s.Updated
	}
	return e
}

// applySchedules applies the schedules. The schedules of the newest moment are in force. The last of them that names a
// bound, or a count, counts. A moment before the last write of the service sets no count, because the user's count is
// newer.
func (e *evaluation) applySchedules() {
	e.low, e.high = e.scaling.Min, e.scaling.Max
	var newest time.Time
	for _, at := range e.in.Fired {
		if at.After(newest) && !at.After(e.in.Now) {
			newest = at
		}
	}
	var count *int
	for i := range e.scaling.Schedules {
		if newest.IsZero() || i >= len(e.in.Fired) || !e.in.Fired[i].Equal(newest) {
			continue
		}
		sch := &e.scaling.Schedules[i]
		if sch.Min != nil {
			e.low = *sch.Min
		}
		if sch.Max != nil {
			e.high = *sch.Max
		}
		if sch.Count != nil {
			count, e.setBySchedule = sch.Count, sch.Cron
		}
	}
	e.low = min(max(e.low, 0), cluster.MaxCount)
	e.high = min(max(e.high, e.low), cluster.MaxCount)
	if count == nil || !newest.After(e.rec.Fired) || !newest.After(e.in.Spec.Updated) {
		e.setBySchedule = ""
	} else {
		e.count, e.recordChanged = *count, true
		e.rec.Fired, e.rec.Recent = newest, nil
	}
	if e.rec.Fired.After(e.estimatesSince) && !e.rec.Fired.After(e.in.Now) {
		e.estimatesSince = e.rec.Fired
	}
}

// applyWindows returns the count that was estimated for long enough. It is the lowest estimate within the window to
// grow, and the highest one to shrink. Without earlier estimates the present count takes their place.
func (e *evaluation) applyWindows(want int) int {
	now := e.in.Now
	e.estimate = Estimate{now, want}
	estimates := make([]Estimate, 0, len(e.in.Estimates)+1)
	for _, w := range e.in.Estimates {
		if w.At.After(e.estimatesSince) && !w.At.After(now) {
			estimates = append(estimates, w)
		}
	}
	if len(estimates) == 0 {
		e.estimate.Count = e.count
		estimates = append(estimates, e.estimate)
	}
	up, down := window(e.scaling.Up, 0), window(e.scaling.Down, cluster.DefaultScaleDownWindow)
	lowest, highest := want, want
	for _, w := range estimates {
		if w.At.After(now.Add(-up)) {
			lowest = min(lowest, w.Count)
		}
		if w.At.After(now.Add(-down)) {
			highest = max(highest, w.Count)
		}
	}
	switch {
	case want > e.count && lowest < want:
		e.holdByWindow(estimates, up, func(n int) bool { return n <= max(lowest, e.count) })
	case want < e.count && highest > want:
		e.holdByWindow(estimates, down, func(n int) bool { return n >= min(highest, e.count) })
	}
	switch {
	case lowest > e.count:
		return lowest
	case highest < e.count:
		return highest
	}
	return e.count
}

// holdByWindow records that a window delays a change until the last of the opposing estimates has left it.
func (e *evaluation) holdByWindow(estimates []Estimate, window time.Duration, against func(int) bool) {
	e.heldBy = fmt.Sprintf("the window of %s", window)
	for _, w := range estimates {
		if until := w.At.Add(window); against(w.Count) && until.After(e.heldUntil) {
			e.heldUntil = until
		}
	}
}

// applyPace limits the distance of the count from its value before the changes within Every.
func (e *evaluation) applyPace(next int) int {
	p := e.scaling.Up
	if next < e.count {
		p = e.scaling.Down
	}
	if next == e.count || p.Step == nil {
		return next
	}
	every := time.Duration(p.Every)
	if every <= 0 {
		every = time.Duration(cluster.DefaultScaleEvery)
	}
	start, oldest := e.count, e.in.Now
	for _, c := range e.rec.Recent {
		if c.At.After(e.in.Now.Add(-every)) && !c.At.After(e.in.Now) {
			start, oldest = c.From, c.At
		}
	}
	step := max(1, p.Step.Of(start))
	limited := min(next, max(e.count, start+step))
	if next < e.count {
		limited = max(next, min(e.count, start-step))
	}
	if limited != next {
		e.heldBy, e.heldUntil = fmt.Sprintf("the pace of %s in %s", p.Step, every), oldest.Add(every)
	}
	return limited
}

// finish assembles the decision.
func (e *evaluation) finish(want, next int, seen string) Decision {
	count := min(max(next, e.low), e.high)
	d := Decision{Estimate: e.estimate, Message: seen}
	switch {
	case e.setBySchedule != "":
		d.Message = fmt.Sprintf("the schedule %q sets the count to %d", e.setBySchedule, count)
	case count > next:
		d.Message = join(seen, fmt.Sprintf("at least %d", e.low))
	case count < next:
		d.Message = join(seen, fmt.Sprintf("at most %d", e.high))
	case e.heldBy != "" && count != want:
		d.NextDecision = e.heldUntil
		d.Message = join(seen, fmt.Sprintf("%d wanted, held at %d by %s", want, count, e.heldBy))
	}
	from := e.rec.Count
	if e.in.GrowthObstacle != "" && count > from {
		count, d.NextDecision = from, time.Time{}
		d.Message = fmt.Sprintf("it stays at %d: %s", from, e.in.GrowthObstacle)
		if e.rec.Message != d.Message {
			e.rec.Message, e.recordChanged = d.Message, true
		}
	}
	if count == from && !e.recordChanged {
		return d
	}
	if count != from {
		e.rec.Count, e.rec.At, e.rec.Message = count, e.in.Now, d.Message
		if e.setBySchedule == "" {
			e.rec.Recent = addChange(e.rec.Recent, cluster.ScaleChange{At: e.in.Now, From: from, To: count})
		}
		owner := e.in.Spec.Owner()
		d.Event = &cluster.Event{
			Type: EventScaled, Cluster: e.in.Spec.Cluster, Owner: &owner, Reason: cluster.ReasonScaling,
			Message: fmt.Sprintf("from %d to %d: %s", from, count, d.Message),
		}
	}
	d.Scale = &e.rec
	return d
}

// addChange puts a change in front. If there are more than MaxScaleChanges, the two oldest are merged, which keeps the
// count before them. A count that only grows, or only shrinks, thus keeps to its pace in any number of steps.
func addChange(recent []cluster.ScaleChange, c cluster.ScaleChange) []cluster.ScaleChange {
	recent = append([]cluster.ScaleChange{c}, recent...)
	if n := len(recent); n > cluster.MaxScaleChanges {
		recent[n-2].From = recent[n-1].From
		recent = recent[:n-1]
	}
	return recent
}

// window returns the length of a direction's window.
func window(p cluster.ScalePace, otherwise cluster.Duration) time.Duration {
	if p.Window == nil {
		return time.Duration(otherwise)
	}
	return max(0, time.Duration(*p.Window))
}

// join puts two parts of a message together.
func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
