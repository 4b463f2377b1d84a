package attempt

import (
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// PermitAge is how long a permit may be used, from when its ask was first sent, on the boot-time clock (P5.2).
const PermitAge = 30 * time.Second

// Permit is how far an attempt's leave to be stopped has got (P5.2). A voluntary stop of an attempt that has begun is a
// wish: the attempt goes on, asks, and stops once it is shown its own newest ask in time. That use is durable before
// the attempt acts on it, and is then completed however late.
type Permit struct {
	// Ask is the newest request, "<session>.<number>", Number counts them, and Of is the session.
	Ask    string `json:"ask,omitempty"`
	Number int    `json:"number,omitempty"`
	Of     uint64 `json:"of,omitempty"`
	// Asked is when Ask was first sent (Boot).
	Asked time.Duration `json:"asked,omitempty"`
	// Used says that Ask was granted and is used: nothing takes that back.
	Used bool `json:"used,omitempty"`
	// At is when it was used (Boot).
	At time.Duration `json:"at,omitempty"`
	// Kept says that the use is durable.
	Kept bool `json:"-"`
}

// Session is the agent's session with a server, as far as it matters to attempts. It does not outlive the agent.
type Session struct {
	// Number is 0 before the agent's first session.
	Number uint64
	// Asks says that the server grants permits; one that does not know them wants every stop at once.
	Asks bool
}

// InSession says that another session has begun: what was asked in an earlier one is void.
func (r *Record) InSession(s Session) { r.Session = s }

// AskSent says when an ask was sent. Only the first time counts.
func (r *Record) AskSent(ask string, now Now) {
	if p := &r.Permit; p.Ask == ask && p.Asked == 0 {
		p.Asked = now.Boot
	}
}

// PermitKept answers Use: the use is durable.
func (r *Record) PermitKept() { r.Permit.Kept = r.Permit.Used }

// Attend asks for a permit where one is needed, for an attempt that is in the middle of a step, and reports
// whether it is to stop, or may: then the step is worth breaking off.
func (r *Record) Attend(now Now) bool {
	_, granted := r.permit(now)
	return granted || r.stop() != nil
}

// stop returns the stop that is in force, or nil. A voluntary one of an attempt of which something ran is in force
// once its permit is used (P5.1).
func (r *Record) stop() *cluster.Stop {
	s := r.Desired.Stop
	switch {
	case s == nil:
		return nil
	case s.Class != cluster.StopVoluntary, r.Begun == 0, r.Permit.Used && r.Permit.Kept,
		r.Session.Number != 0 && !r.Session.Asks,
		r.Ending != nil && r.Ending.Cause == lifecycle.CauseStop: // it has begun
		return s
	}
	return nil
}

// lingers returns until when the attempt goes on although it may stop (Boot), 0 for not at all: it has left the lists
// of healthy addresses, and who used it should notice first.
func (r *Record) lingers(def *cluster.TaskDefinition) time.Duration {
	if s := r.Desired.Stop; s == nil || s.Class != cluster.StopVoluntary || r.Permit.At == 0 ||
		r.Health == cluster.HealthFailing {
		return 0
	}
	return r.Permit.At + def.Lingers()
}

// permit makes an ask where one is due: in a new session, and where a permit came too late. It never asks again by
// itself. The step is to make the use of a permit durable.
func (r *Record) permit(now Now) (step Step, granted bool) {
	p, s := &r.Permit, r.Desired.Stop
	if s == nil || r.stop() != nil || r.Terminal() || r.Phase == PhaseClosing {
		return Step{}, false
	}
	if p.Used {
		return Step{Do: Use}, true
	}
	shown := p.Ask != "" && s.Permit == p.Ask
	switch {
	case r.Session.Number == 0: // no session: the wish waits
	case p.Of != r.Session.Number, shown && (p.Asked == 0 || now.Boot-p.Asked > PermitAge):
		number := p.Number + 1
		*p = Permit{
			Ask:    strconv.FormatUint(r.Session.Number, 10) + "." + strconv.Itoa(number),
			Number: number, Of: r.Session.Number,
		}
	case shown:
		p.Used, p.At = true, now.Boot
		return Step{Do: Use}, true
	}
	return Step{}, false
}
