// Package scaler decides how many tasks a service has whose count follows what its tasks use, or the clock.
//
// A decision is a function of values. The caller measures, looks up the moments of the schedules, remembers the wishes
// that it was handed, and writes the record that comes out. In the order of their weight, the count obeys:
//
//  1. The bounds in force, Min and Max of the scaling or of a schedule.
//  2. A schedule's own count, once for each of its moments.
//  3. The targets: each says how many tasks' worth of load there is, and the highest counts. A load within Tolerance of
//     what the count should carry changes nothing. A metric that is not known never lets the count shrink, and none
//     that is not known lets it grow. Tasks that were not measured count as idle for growth and as busy for shrinking.
//  4. The windows: of the counts that were wished for within a window, the lowest to grow, the highest to shrink.
//  5. The pace: no more than Step within Every.
//
// A count that the user changes, and one that a schedule set, begins anew: earlier wishes and changes say nothing about
// it.
package scaler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Tolerance is how far the load may be from what the count of tasks should carry, as a share of it, before the count
// changes.
const Tolerance = 0.1

// MaxAge is how old a measurement may be; an older one counts as not known.
const MaxAge = 3 * time.Minute

// EventScaled is the type of the event of a change.
const EventScaled = "service.scaled"

// Input is what is known when a service's count is looked at. Decide changes nothing in it.
type Input struct {
	// Spec is the service as the user wrote it, with the defaults filled in, not as Service.At gives it.
	Spec *cluster.Service
	// Scale is the newest record, nil for none.
	Scale *cluster.Scale
	// Measured holds a value for each of Spec.Scaling.Targets, in their order. One that is missing is not known.
	Measured []Measured
	// Wishes are those that earlier decisions on the service handed out, in any order. A caller that begins, such as a
	// new leader, has none: then the count stays for a window's length, as if it had been wished for now.
	Wishes []Wish
	// Fired is for each of Spec.Scaling.Schedules its newest moment up to Now, zero for none.
	Fired []time.Time
	Now   time.Time
}

// Measured is the value of one target's metric.
type Measured struct {
	// Value is, for cpu and memory, what a task uses in percent of what it reserves, and for requests how many it
	// answers in a second: both the mean of Tasks tasks. For prometheus it is the answer, undivided.
	Value float64
	// Known is false where nothing was measured.
	Known bool
	// At is when; the zero time stands for now.
	At time.Time
	// Tasks is how many tasks the mean is of: those of the service that run and were measured. It means nothing for
	// prometheus.
	Tasks int
}

// Wish is the count that the metrics asked for at some time, before windows, pace and bounds.
type Wish struct {
	At    time.Time
	Count int
}

// Decision is what follows.
type Decision struct {
	// Scale is the record to write, nil where it stands as it is.
	Scale *cluster.Scale
	// Wish is to be remembered by the caller for as long as Keep says. Without a time there is none.
	Wish Wish
	// NextLook is when a change that a window or the pace holds back may come, zero for none. The caller looks again
	// then, at each next moment of a schedule, and whenever it has measured.
	NextLook time.Time
	// Message says what was seen and what follows from it, empty where the service is not scaled.
	Message string
	// Event tells of a change of the count, nil for none.
	Event *cluster.Event
}

// Keep returns how long wishes are worth remembering: the longer of the service's two windows.
func Keep(s *cluster.Scaling) time.Duration {
	return max(window(s.Up, 0), window(s.Down, cluster.DefaultScaleDownWindow))
}

// Decide returns what follows from the input. A service without scaling, a daemon, and one that is stopped, deleted or
// suspended in its scaling is left as it is.
func Decide(in Input) Decision {
	s := in.Spec
	switch {
	case s.Scaling == nil || s.Mode == cluster.ModeDaemon || s.Stopped || s.Deleted:
		return Decision{}
	case s.Scaling.Suspended:
		return Decision{Message: "suspended: the count stays where it is"}
	}
	l := begin(in)            // 1. where the count stands
	l.clock()                 // 2. the bounds in force, and a count that a schedule sets
	want, seen := l.metrics() // 3. what the metrics ask for
	next := l.windows(want)   // 4. for how long they have
	next = l.pace(next)       // 5. how fast it may change
	return l.end(want, next, seen)
}

// look is one look at a service's count while it is decided on.
type look struct {
	in      *Input
	scaling *cluster.Scaling
	rec     cluster.Scale // the record as it will be
	dirty   bool          // the record differs from the one that was given, whatever becomes of the count
	count   int           // as it stands
	low     int           // bounds in force
	high    int
	since   time.Time // wishes from before say nothing
	set     string    // the expression of the schedule that set the count in this look
	wish    Wish
	held    string    // what holds a change back
	next    time.Time // when that may end
}

// begin finds where the count stands. A user who changed the count begins anew.
func begin(in Input) *look {
	s := in.Spec
	l := &look{in: &in, scaling: s.Scaling, rec: cluster.Scale{Count: s.Count, From: s.Count}}
	switch {
	case in.Scale == nil:
	case in.Scale.From == s.Count:
		l.rec = *in.Scale
	default:
		l.dirty = true
		l.rec.Fired = in.Scale.Fired
		l.rec.At = in.Now
		l.rec.Message = fmt.Sprintf("the count was set to %d", s.Count)
	}
	l.count = l.rec.Count
	if !s.Updated.After(in.Now) {
		l.since = s.Updated
	}
	return l
}

// clock applies the schedules: those whose moment is the newest of all are in force, and of them the last that names a
// bound, or a count, counts. A moment from before the service was last written sets no count: what the user wrote is
// newer.
func (l *look) clock() {
	l.low, l.high = l.scaling.Min, l.scaling.Max
	var newest time.Time
	for _, at := range l.in.Fired {
		if at.After(newest) && !at.After(l.in.Now) {
			newest = at
		}
	}
	var count *int
	for i := range l.scaling.Schedules {
		if newest.IsZero() || i >= len(l.in.Fired) || !l.in.Fired[i].Equal(newest) {
			continue
		}
		sch := &l.scaling.Schedules[i]
		if sch.Min != nil {
			l.low = *sch.Min
		}
		if sch.Max != nil {
			l.high = *sch.Max
		}
		if sch.Count != nil {
			count, l.set = sch.Count, sch.Cron
		}
	}
	l.low = min(max(l.low, 0), cluster.MaxCount)
	l.high = min(max(l.high, l.low), cluster.MaxCount)
	if count == nil || !newest.After(l.rec.Fired) || !newest.After(l.in.Spec.Updated) {
		l.set = ""
	} else {
		l.count, l.dirty = *count, true
		l.rec.Fired, l.rec.Recent = newest, nil
	}
	if l.rec.Fired.After(l.since) && !l.rec.Fired.After(l.in.Now) {
		l.since = l.rec.Fired
	}
}

// windows returns the count that was wished for long enough: of the wishes within the window the lowest to grow, the
// highest to shrink. Where there are no earlier wishes the count that stands takes their place.
func (l *look) windows(want int) int {
	now := l.in.Now
	l.wish = Wish{now, want}
	wishes := make([]Wish, 0, len(l.in.Wishes)+1)
	for _, w := range l.in.Wishes {
		if w.At.After(l.since) && !w.At.After(now) {
			wishes = append(wishes, w)
		}
	}
	if len(wishes) == 0 {
		l.wish.Count = l.count
		wishes = append(wishes, l.wish)
	}
	up, down := window(l.scaling.Up, 0), window(l.scaling.Down, cluster.DefaultScaleDownWindow)
	lowest, highest := want, want
	for _, w := range wishes {
		if w.At.After(now.Add(-up)) {
			lowest = min(lowest, w.Count)
		}
		if w.At.After(now.Add(-down)) {
			highest = max(highest, w.Count)
		}
	}
	switch {
	case want > l.count && lowest < want:
		l.wait(wishes, up, func(n int) bool { return n <= max(lowest, l.count) })
	case want < l.count && highest > want:
		l.wait(wishes, down, func(n int) bool { return n >= min(highest, l.count) })
	}
	switch {
	case lowest > l.count:
		return lowest
	case highest < l.count:
		return highest
	}
	return l.count
}

// wait notes that a window holds a change back until the last of the wishes that count against it has left.
func (l *look) wait(wishes []Wish, window time.Duration, against func(int) bool) {
	l.held = fmt.Sprintf("the window of %s", window)
	for _, w := range wishes {
		if until := w.At.Add(window); against(w.Count) && until.After(l.next) {
			l.next = until
		}
	}
}

// pace limits how far the count is from where it was before the changes within Every.
func (l *look) pace(next int) int {
	p := l.scaling.Up
	if next < l.count {
		p = l.scaling.Down
	}
	if next == l.count || p.Step == nil {
		return next
	}
	every := time.Duration(p.Every)
	if every <= 0 {
		every = time.Duration(cluster.DefaultScaleEvery)
	}
	start, oldest := l.count, l.in.Now
	for _, c := range l.rec.Recent {
		if c.At.After(l.in.Now.Add(-every)) && !c.At.After(l.in.Now) {
			start, oldest = c.From, c.At
		}
	}
	step := max(1, p.Step.Of(start))
	limited := min(next, max(l.count, start+step))
	if next < l.count {
		limited = max(next, min(l.count, start-step))
	}
	if limited != next {
		l.held, l.next = fmt.Sprintf("the pace of %s in %s", p.Step, every), oldest.Add(every)
	}
	return limited
}

// end puts the decision together.
func (l *look) end(want, next int, seen string) Decision {
	count := min(max(next, l.low), l.high)
	d := Decision{Wish: l.wish, Message: seen}
	switch {
	case l.set != "":
		d.Message = fmt.Sprintf("the schedule %q sets the count to %d", l.set, count)
	case count > next:
		d.Message = join(seen, fmt.Sprintf("at least %d", l.low))
	case count < next:
		d.Message = join(seen, fmt.Sprintf("at most %d", l.high))
	case l.held != "" && count != want:
		d.NextLook = l.next
		d.Message = join(seen, fmt.Sprintf("%d wanted, held at %d by %s", want, count, l.held))
	}
	from := l.rec.Count
	if count == from && !l.dirty {
		return d
	}
	if count != from {
		l.rec.Count, l.rec.At, l.rec.Message = count, l.in.Now, d.Message
		if l.set == "" {
			l.rec.Recent = remember(l.rec.Recent, cluster.ScaleChange{At: l.in.Now, From: from, To: count})
		}
		owner := l.in.Spec.Owner()
		d.Event = &cluster.Event{
			Type: EventScaled, Cluster: l.in.Spec.Cluster, Owner: &owner, Reason: cluster.ReasonScaling,
			Message: fmt.Sprintf("from %d to %d: %s", from, count, d.Message),
		}
	}
	d.Scale = &l.rec
	return d
}

// remember puts a change in front. Of more than MaxScaleChanges the two oldest become one, so that what the count was
// before them is not forgotten: a count that only grows, or only shrinks, keeps to its pace however many steps that
// takes.
func remember(recent []cluster.ScaleChange, c cluster.ScaleChange) []cluster.ScaleChange {
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
