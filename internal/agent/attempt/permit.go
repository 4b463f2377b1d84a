package attempt

import (
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// PermitAge is how long a permit may be used, from the first sending of its ask, on the boot-time clock (P5.2).
const PermitAge = 30 * time.Second

// Permit is the state of an attempt's permit to stop (P5.2). A voluntary stop of an attempt that has begun is only a
// request. The attempt continues, asks for a permit, and stops once the assignment shows its newest ask in time. The
// use is durable before the attempt acts on it, and is then completed however late.
type Permit struct {
	// Ask is the newest request, "<session>.<number>". Number counts the requests, and Of is the session.
	Ask    string `json:"ask,omitempty"`
	Number int    `json:"number,omitempty"`
	Of     uint64 `json:"of,omitempty"`
	// Asked is when Ask was first sent (Boot).
	Asked time.Duration `json:"asked,omitempty"`
	// Used means that Ask was granted and is used; the use is final.
	Used bool `json:"used,omitempty"`
	// At is when it was used (Boot).
	At time.Duration `json:"at,omitempty"`
	// Kept means that the use is durable.
	Kept bool `json:"-"`
}

// Session is the part of the agent's session that matters to attempts. It does not outlive the agent.
type Session struct {
	// Number is 0 before the agent's first session.
	Number uint64
	// Asks means that a voluntary stop needs a permit. It is false in tests that switch the clause off.
	Asks bool
}

// AskSent records when an ask was sent; only the first time counts.
func (p *Permit) AskSent(ask string, now Now) {
	if p.Ask == ask && p.Asked == 0 {
		p.Asked = now.Boot
	}
}

// PermitKept answers Use: the use is durable.
func (r *Record) PermitKept() { r.Permit.Kept = r.Permit.Used }

// Attend requests a permit if one is needed while a step runs. It reports whether the attempt must or may stop now,
// which is a reason to cancel the step.
func (r *Record) Attend(now Now) bool {
	t := transition{r, nil, now}
	_, granted := t.permit()
	return granted || r.stop() != nil
}

// stop returns the stop that is in force, or nil. A voluntary stop of an attempt with a started program is in force
// once its permit is used (P5.1).
func (r *Record) stop() *cluster.Stop {
	s := r.Desired.Stop
	switch {
	case s == nil:
		return nil
	case s.Class != cluster.StopVoluntary, r.Begun == 0, r.Permit.Used && r.Permit.Kept,
		r.Session.Number != 0 && !r.Session.Asks,
		r.Ending != nil && r.Ending.Cause == lifecycle.CauseStop: // the stop has begun
		return s
	}
	return nil
}

// lingerUntil returns how long the attempt continues after its permit (Boot), 0 for not at all. The attempt has left
// the lists of healthy addresses and its registrations, and clients need time to notice.
func (t *transition) lingerUntil() time.Duration {
	if s := t.Desired.Stop; s == nil || s.Class != cluster.StopVoluntary || t.Permit.At == 0 ||
		t.Health == cluster.HealthFailing {
		return 0
	}
	return max(t.Permit.At, t.Left) + t.def.StopDelay()
}

// permit creates an ask if one is due: in a new session, or when a permit came too late. It never repeats an ask by
// itself. The step makes the use of a permit durable.
func (t *transition) permit() (step Step, granted bool) {
	p, s := &t.Permit, t.Desired.Stop
	if s == nil || t.stop() != nil || t.Terminal() || t.Phase == PhaseClosing {
		return Step{}, false
	}
	if p.Used {
		return Step{Do: Use}, true
	}
	shown := p.Ask != "" && s.Permit == p.Ask
	switch {
	case t.Session.Number == 0: // no session: the stop waits
	case p.Of != t.Session.Number, shown && (p.Asked == 0 || t.now.Boot-p.Asked > PermitAge):
		number := p.Number + 1
		*p = Permit{
			Ask:    strconv.FormatUint(t.Session.Number, 10) + "." + strconv.Itoa(number),
			Number: number, Of: t.Session.Number,
		}
	case shown:
		p.Used, p.At = true, t.now.Boot
		return Step{Do: Use}, true
	}
	return Step{}, false
}
