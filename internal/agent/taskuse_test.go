package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// setUsage sets the use of an attempt's container from now on.
func (w *world) setUsage(uuid string, u executor.Usage) {
	w.executor.mu.Lock()
	defer w.executor.mu.Unlock()
	if w.executor.uses == nil {
		w.executor.uses = map[string]executor.Usage{}
	}
	w.executor.uses[uuid] = u
}

// each returns the reported statistics of an attempt, in order.
func (w *world) each(uuid string) (all []cluster.TaskStats) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, r := range w.server.reports {
		if r.Stats == nil {
			continue
		}
		for _, s := range r.Stats.Each {
			if s.UUID == uuid {
				all = append(all, s)
			}
		}
	}
	return all
}

// A task's CPU and memory are reported when they change notably; an idle node reports nothing.
func TestTaskStatsAreSentWhenTheyChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		var cpu time.Duration
		work := func(milli, readings int, memory cluster.Bytes) {
			for range readings {
				cpu += measureEvery * time.Duration(milli) / 1000
				w.setUsage("s1", executor.Usage{CPU: cpu, Memory: memory})
				w.pass(measureEvery)
			}
		}
		work(100, 10, 50*cluster.MiB)
		before := w.each("s1")
		if last := before[len(before)-1]; last.CPU != 100 || last.Memory != 50*cluster.MiB || last.Requests != -1 {
			t.Errorf("reported %+v, want 100 milli and 50 MiB", last)
		}
		work(105, 60, 50*cluster.MiB+cluster.KiB)
		if n := len(w.each("s1")) - len(before); n != 0 {
			t.Errorf("reported %d times what hardly changed: %+v", n, w.each("s1")[len(before):])
		}
		w.server.mu.Lock()
		for _, r := range w.server.reports[len(w.server.reports)-10:] {
			if r.Stats != nil {
				t.Errorf("an idle node reports %+v", r.Stats)
			}
		}
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{Heartbeat: cluster.Duration(time.Minute)}, nil
		}
		w.server.mu.Unlock()
		work(105, 60, 50*cluster.MiB+cluster.KiB)
		was := len(w.each("s1"))
		work(900, 4, 50*cluster.MiB+cluster.KiB) // a jump does not wait for the heartbeat
		if all := w.each("s1"); len(all) == was || all[len(all)-1].CPU != 900 {
			t.Errorf("a jump was reported %d times: %+v", len(all)-was, all[was:])
		}
		w.restart() // a session begins with all statistics
		w.pass(3 * measureEvery)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		if reg := w.server.regs[len(w.server.regs)-1]; reg.Stats == nil {
			t.Error("the registration has no stats")
		}
	})
}

func TestRequestsAreARate(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		def.Ports = []cluster.Port{{Name: "http"}, {Name: "admin"}}
		d := w.desired("s1", def, cluster.KindService)
		d.Ports = map[string]int{"http": 8080, "admin": 9090}
		d.RequestCounter = &cluster.RequestCounter{Port: "admin", Series: "hits"}
		var total float64
		var asked []string
		fails := false
		w.answers = func(port int, m cluster.RequestCounter) (float64, error) {
			asked = append(asked, fmt.Sprint(port, m.Series))
			if fails {
				return 0, errors.New("no page")
			}
			total += 50
			return total, nil
		}
		w.setUsage("s1", executor.Usage{Memory: cluster.MiB})
		w.assign(d, def)
		w.pass(30 * time.Second)
		all := w.each("s1")
		if last := all[len(all)-1]; last.Requests != 10 {
			t.Errorf("reported %+v, want 10 requests a second", last)
		}
		w.mu.Lock()
		if len(asked) < 4 || asked[0] != "9090hits" {
			t.Errorf("asked %v, want the admin port for hits", asked)
		}
		total = 0 // a new program counts from 0
		w.mu.Unlock()
		w.pass(30 * time.Second)
		if last := w.agent.meter.Stats.Latest().Each[0].Requests; last != 10 {
			t.Errorf("after a restart of the count: %v, want 10", last)
		}
		w.mu.Lock()
		fails = true
		w.mu.Unlock()
		w.pass(20 * time.Second)
		all = w.each("s1")
		if last := all[len(all)-1]; last.Requests != -1 {
			t.Errorf("reported %+v for a task that does not answer, want -1", last)
		}
		// From now on another port and another page.
		d.RequestCounter = nil
		w.sendAgain(d)
		w.mu.Lock()
		asked = nil
		w.mu.Unlock()
		w.pass(20 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(asked) != 0 {
			t.Errorf("asked %v after the meter was taken away", asked)
		}
	})
}
