package agent

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// barriers returns the number of requests for a start barrier.
func (w *world) barriers() (n int) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, r := range w.server.reports {
		for i := range r.Tasks {
			if r.Tasks[i].State == cluster.StateStarting {
				n++
			}
		}
	}
	return n
}

func TestBarrierRefusedMeansNoUserCode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.server.answer = func(_ *server, r transport.Report) (reply transport.ReportReply, err error) {
			for i := range r.Tasks {
				if r.Tasks[i].State == cluster.StateStarting {
					reply.Refused = map[string]transport.Refused{r.Tasks[i].UUID: {Message: "the attempt is over"}}
				}
			}
			return reply, nil
		}
		w.batch("b1", definition("work", "app"))
		w.pass(time.Minute)
		w.want("b1", cluster.StateRejected, cluster.ReasonBarrier)
		w.wantEffects()
	})
}

func TestBarrierReplyLostIsAskedUnderTheSameNumber(t *testing.T) {
	inWorld(t, func(w *world) {
		lost := 0
		w.server.answer = func(_ *server, _ transport.Report) (reply transport.ReportReply, err error) {
			if lost < 3 {
				lost++
				return reply, errDown
			}
			return reply, nil
		}
		w.batch("b1", definition("work", "app"))
		w.wantEffects()
		w.pass(10 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.wantEffects("app b1")
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for i, r := range w.server.reports[:4] {
			if r.Seq != w.server.reports[0].Seq {
				t.Errorf("try %d has the number %d, want %d", i, r.Seq, w.server.reports[0].Seq)
			}
		}
	})
}

func TestBarrierThatIsTooOldIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := 40 * time.Second
		w.server.answer = func(s *server, r transport.Report) (transport.ReportReply, error) {
			if len(r.Tasks) > 0 && slow > 0 {
				wait := slow
				slow = 0
				s.mu.Unlock()
				time.Sleep(wait) // in-bubble: the server is slow
				s.mu.Lock()
			}
			return transport.ReportReply{}, nil
		}
		w.batch("b1", definition("work", "app"))
		w.pass(39 * time.Second)
		w.wantEffects()
		w.pass(2 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.wantEffects("app b1")
		if n := w.barriers(); n != 2 {
			t.Errorf("the barrier was requested %d times, want 2", n)
		}
	})
}

func TestBarrierRefusedForNowIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		tries := 0
		w.server.answer = func(_ *server, r transport.Report) (reply transport.ReportReply, err error) {
			if len(r.Tasks) > 0 && tries < 4 {
				tries++
				reply.Refused = map[string]transport.Refused{"b1": {Message: "no quorum", Retry: true}}
			}
			return reply, nil
		}
		w.batch("b1", definition("work", "app"))
		w.wantEffects()
		w.pass(10 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.wantEffects("app b1")
		if tries != 4 {
			t.Errorf("asked %d times in vain, want 4", tries)
		}
	})
}

func TestBarrierWaitsForTheServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Pull: 10 * time.Second}
		w.batch("b1", definition("work", "app"))
		w.service("s1", definition("web", "app2"))
		w.server.cut(false)
		w.pass(time.Hour)
		w.wantEffects("app2 s1")
		w.server.cut(true)
		w.pass(time.Minute)
		w.want("b1", cluster.StateRunning, "")
		w.wantEffects("app2 s1", "app b1")
	})
}

// The executor does not answer when the program is to start; when it answers, the barrier is too old (P4.3).
func TestBarrierGrowsOldBeforeTheStart(t *testing.T) {
	inWorld(t, func(w *world) {
		set := func(down bool) { w.executor.mu.Lock(); w.executor.down = down; w.executor.mu.Unlock() }
		w.server.answer = func(_ *server, r transport.Report) (transport.ReportReply, error) {
			if len(r.Tasks) > 0 && r.Tasks[0].State == cluster.StateStarting {
				set(true) // it passes, and now the executor goes away
			}
			return transport.ReportReply{}, nil
		}
		w.batch("b1", definition("work", "app"))
		w.pass(20 * time.Second)
		w.server.mu.Lock()
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{Refused: map[string]transport.Refused{"b1": {Message: "it is over"}}}, nil
		}
		w.server.mu.Unlock()
		w.pass(20 * time.Second)
		set(false)
		w.pass(time.Minute)
		w.wantEffects()
		w.server.mu.Lock()
		w.server.answer = nil
		w.server.mu.Unlock()
	})
}
