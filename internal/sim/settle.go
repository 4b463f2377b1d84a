package sim

import (
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// endFaults ends all faults.
func (f *fleet) endFaults() {
	f.calm.Store(true)
	f.net.endFaults()
	f.disk.endFaults()
	f.engine.Fill(false)
	f.engine.Restart()
	for _, h := range f.hosts {
		h.mu.Lock()
		h.down = 0
		if h.live != nil {
			h.live.paused.Store(false)
		}
		h.mu.Unlock()
		h.start()
	}
	for _, n := range f.nodes {
		n.fails.Store(0)
		n.mu.Lock()
		n.trouble, n.lateStarts, n.down = 0, 0, 0
		n.mu.Unlock()
		if n.falseReports.wasEverFalse() { // no record says what a lying node runs
			n.kill()
			f.checker.excuseNode(n.name)
			n.reboot()
			n.falseReports.stop()
		}
		n.start()
	}
	for i := range f.story.Events {
		if e := &f.story.Events[i]; e.Fault == User && f.byName[e.Target] != nil {
			f.orderUser(Event{Target: e.Target, Arg: "uncordon"})
		}
	}
	for _, name := range []string{"web", "shop"} {
		if f.story.hits(name, User) {
			f.orderUser(Event{Target: name, Arg: "finish"})
		}
	}
	for i := range f.story.Events {
		if e := &f.story.Events[i]; e.Arg == "tick" {
			f.orderUser(Event{Target: e.Target, Arg: "suspend"})
		}
	}
	if f.story.claims() { // the other domain has no nodes in the end
		f.orderUser(Event{Target: otherJob, Arg: "cancel"})
	}
	for _, domain := range []string{cluster.DefaultDomain, otherDomain} {
		if f.story.hasRecordWriters(domain) { // nobody else would place its tasks
			f.startProposer(domain, modeCareful, true)
		}
	}
	f.external.set("25")
	f.generations = f.checker.serviceGenerations()
	f.checker.liveness.endFaults()
}

// awaitUserWrites waits until the user's orders are written, and reports false if that takes too long.
func (f *fleet) awaitUserWrites() bool {
	for ; f.orders > 0; f.orders-- {
		limit := time.NewTimer(5 * time.Minute)
		select {
		case <-f.user.idle:
			limit.Stop()
		case <-limit.C:
			f.checker.reportBreach("converges", "a user's write was not acknowledged within 5m without faults")
			return false
		}
	}
	return true
}

func (l *falseReports) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.active)
}

// settle waits until the state is as users want it, and reports a breach if that takes too long.
func (f *fleet) settle() {
	if f.options.StopAtOnce && f.checker.hasBreach() {
		return
	}
	if f.story.Has(Noise, EngineLate) { // messages still under way arrive
		time.Sleep(35 * time.Second) // in-bubble: every story has one
	}
	if !f.awaitUserWrites() {
		return
	}
	began := time.Now()
	wrong := convergenceCheck{f}.firstMismatch()
	for pause := time.Second; wrong != "" && time.Since(began) < settleLimit; pause = min(2*pause, 10*time.Second) {
		time.Sleep(pause) // in-bubble: every story has one
		f.checker.liveness.checkDeadNodes()
		if f.options.StopAtOnce && f.checker.hasBreach() {
			return
		}
		wrong = convergenceCheck{f}.firstMismatch()
	}
	if wrong != "" {
		invariant := "converges"
		for _, name := range []string{"reason", "leaked"} {
			if strings.HasPrefix(wrong, name+": ") {
				invariant = name
			}
		}
		f.checker.reportBreach(invariant, "not as users asked %v after the last fault: %s", settleLimit, wrong)
	}
	f.checker.specs.checkSpecs()
}
