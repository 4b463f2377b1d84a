package sim

import (
	"strings"
	"time"
)

// endFaults ends all faults.
func (w *World) endFaults() {
	w.net.endFaults()
	w.disk.endFaults()
	w.engine.Fill(false)
	w.engine.Restart()
	for _, h := range w.hosts {
		h.mu.Lock()
		h.down = 0
		if h.live != nil {
			h.live.paused.Store(false)
		}
		h.mu.Unlock()
		h.start()
	}
	for _, n := range w.nodes {
		n.fails.Store(0)
		n.mu.Lock()
		n.trouble, n.lateStarts, n.down = 0, 0, 0
		n.mu.Unlock()
		if n.lies.hasLied() { // nobody knows what a lying node runs
			n.kill()
			w.checker.excuseNode(n.name)
			n.reboot()
			n.lies.stop()
		}
		n.start()
	}
	for i := range w.story.Events {
		if e := &w.story.Events[i]; e.Fault == User && w.byName[e.Target] != nil {
			w.orderUser(Event{Target: e.Target, Arg: "uncordon"})
		}
	}
	for _, name := range []string{"web", "shop"} {
		if w.story.hits(name, User) {
			w.orderUser(Event{Target: name, Arg: "finish"})
		}
	}
	for i := range w.story.Events {
		if e := &w.story.Events[i]; e.Arg == "tick" {
			w.orderUser(Event{Target: e.Target, Arg: "suspend"})
		}
	}
	w.external.set("25")
	w.generations = w.checker.generations()
	w.checker.liveness.endFaults()
}

// awaitUserWrites waits until the user's orders are written, and reports false if that takes too long.
func (w *World) awaitUserWrites() bool {
	for ; w.orders > 0; w.orders-- {
		limit := time.NewTimer(5 * time.Minute)
		select {
		case <-w.user.idle:
			limit.Stop()
		case <-limit.C:
			w.checker.reportBreach("converges", "a user's write was not acknowledged within 5m without faults")
			return false
		}
	}
	return true
}

func (l *lies) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.now)
}

// settle waits until the state is as users want it.
func (w *World) settle() {
	if w.options.StopAtOnce && w.checker.broken() {
		return
	}
	if w.story.Has(Noise, EngineLate) { // messages still under way arrive
		time.Sleep(35 * time.Second) // in-bubble: every world is in one
	}
	if !w.awaitUserWrites() {
		return
	}
	began := time.Now()
	wrong := convergenceCheck{w}.firstMismatch()
	for pause := time.Second; wrong != "" && time.Since(began) < settleLimit; pause = min(2*pause, 10*time.Second) {
		time.Sleep(pause) // in-bubble: every world is in one
		w.checker.liveness.checkDeadNodes()
		if w.options.StopAtOnce && w.checker.broken() {
			return
		}
		wrong = convergenceCheck{w}.firstMismatch()
	}
	if wrong != "" {
		invariant := "converges"
		for _, name := range []string{"reason", "leaked"} {
			if strings.HasPrefix(wrong, name+": ") {
				invariant = name
			}
		}
		w.checker.reportBreach(invariant, "not as users asked %v after the last fault: %s", settleLimit, wrong)
	}
	w.checker.specs.checkSpecs()
}
