package sim

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// addSchedulers gives a domain an external scheduler: processes that die, return, overlap, fall silent, propose late or
// senselessly, and go on with old claims. Leaders change meanwhile, and the user changes the scheduler.
func (a *generator) addSchedulers() {
	r := a.random
	domain := cluster.DefaultDomain
	if a.story.claims() && r.IntN(2) == 0 {
		domain = otherDomain
	}
	mode := func() string {
		return []string{
			modeCareful, modeCareful, modeCareful, modeSlow, modeSenseless, modeStubborn,
		}[r.IntN(6)]
	}
	length := func() time.Duration {
		if r.IntN(3) == 0 {
			return 0 // until the end
		}
		return time.Second + a.span(30*time.Second, 2*time.Minute)
	}
	a.add(time.Duration(r.IntN(20_000))*time.Millisecond, Scheduler, domain, length(), mode())
	for range r.IntN(4) {
		at := a.randomTime()
		a.add(at, Scheduler, domain, length(), mode())
		if r.IntN(3) == 0 { // the leader learns late of the claim
			a.add(at-time.Second, Lag, a.server(), 10*time.Second, fmt.Sprint(time.Duration(1+r.IntN(6))*time.Second))
		}
	}
	for range r.IntN(4) {
		at := a.randomTime()
		switch r.IntN(5) {
		case 0, 1:
			a.add(at, Cut, proposerMachine, a.span(15*time.Second, time.Minute), "")
		case 2:
			a.add(at, Noise, proposerMachine+"-"+a.server(), a.span(30*time.Second, 2*time.Minute), "")
		case 3:
			a.add(at, ServerCrash, leaderTarget, a.span(3*time.Second, 20*time.Second), "")
		default:
			a.add(at, User, domain, 0, "builtin")
			if r.IntN(3) > 0 {
				a.add(at+a.span(5*time.Second, 40*time.Second), User, domain, 0, "external")
			}
		}
	}
}
