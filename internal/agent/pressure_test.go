package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// reportedPressure returns the pressure in the newest report with statistics.
func (w *world) reportedPressure() *cluster.Pressure {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, r := range slices.Backward(w.server.reports) {
		if r.Stats != nil {
			return r.Stats.Pressure
		}
	}
	return nil
}

func (w *world) setFree(free cluster.Bytes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scarcity = facts.Scarcity{Stall: -1, Free: free, Total: 1000 * cluster.MiB}
}

// reserving begins an attempt of a service or job with a reservation and a use of memory.
func (w *world) reserving(uuid string, kind cluster.Kind, priority int, reserved, used cluster.Bytes) cluster.Desired {
	def := definition("d"+uuid, "app")
	def.Containers[0].Resources.Memory = reserved
	d := w.desired(uuid, def, kind)
	d.Task, d.Priority = cluster.ServiceTask("default", uuid, 1, 0), priority
	if kind == cluster.KindJob {
		d.Task = cluster.JobTask("default", uuid, 1, "main", 0)
	}
	d.Owner.Name = uuid
	w.setUsage(uuid, executor.Usage{Memory: used})
	w.assign(d, def)
	return d
}

func TestPressureNamesAVictim(t *testing.T) {
	const mib = cluster.MiB
	type task struct {
		uuid           string
		kind           cluster.Kind
		priority       int
		reserved, used cluster.Bytes
	}
	service, job := cluster.KindService, cluster.KindJob
	for name, test := range map[string]struct {
		tasks []task
		want  string
		why   string
	}{
		"nothing runs": {},
		"the one that uses the most beyond what it reserved": {
			tasks: []task{
				{"a", service, 50, 500 * mib, 550 * mib},
				{"b", service, 50, 100 * mib, 200 * mib},
				{"c", service, 50, 300 * mib, 200 * mib},
			},
			want: "b", why: "priority 50, uses 200 MiB, 100 MiB more than its request",
		},
		"of the lowest priority": {
			tasks: []task{{"a", service, 60, 100 * mib, 900 * mib}, {"b", service, 50, 300 * mib, 200 * mib}},
			want:  "b", why: "priority 50, uses 200 MiB, the most, and no task uses more than its request; " +
				"it requested 300 MiB",
		},
		"the largest, where none is beyond": {
			tasks: []task{{"a", service, 50, 300 * mib, 200 * mib}, {"b", service, 50, 900 * mib, 250 * mib}},
			want:  "b", why: "priority 50, uses 250 MiB, the most, and no task uses more than its request; " +
				"it requested 900 MiB",
		},
		"never batch": {
			tasks: []task{{"a", job, 10, 100 * mib, 900 * mib}, {"b", service, 50, 0, mib}},
			want:  "b", why: "priority 50, uses 1 MiB, 1 MiB more than its request",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.setFree(900 * mib)
				for _, k := range test.tasks {
					w.reserving(k.uuid, k.kind, k.priority, k.reserved, k.used)
				}
				w.pass(10 * time.Second)
				w.setFree(30 * mib)
				w.pass(3*measureEvery + time.Second)
				p := w.reportedPressure()
				if p == nil || p.Victim != test.want || p.Why != test.why ||
					p.Message != "memory: 97% of the machine is used" {
					t.Errorf("got %+v, want the victim %q, %q", p, test.want, test.why)
				}
			})
		})
	}
}

// Pressure is reported immediately after three measurements. It names the same victim until the victim has stopped, and
// it ends with hysteresis.
func TestPressureComesAndGoes(t *testing.T) {
	const mib = cluster.MiB
	inWorld(t, func(w *world) {
		w.server.mu.Lock()
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{Heartbeat: cluster.Duration(time.Minute)}, nil
		}
		w.server.mu.Unlock()
		w.setFree(900 * mib)
		a := w.reserving("a", cluster.KindService, 50, 10*mib, 100*mib)
		w.reserving("b", cluster.KindService, 50, 10*mib, 90*mib)
		w.pass(2 * time.Minute)
		w.setFree(40 * mib)
		w.pass(2 * measureEvery)
		w.setFree(900 * mib) // for two measurements only
		w.pass(5 * measureEvery)
		if p := w.reportedPressure(); p != nil {
			t.Errorf("a short moment is reported: %+v", p)
		}
		w.setFree(40 * mib)
		w.pass(4 * measureEvery)
		p := w.reportedPressure()
		if p == nil || p.Victim != "a" || !strings.HasPrefix(p.Why, "priority 50, uses 100 MiB, 90 MiB more") {
			t.Fatalf("got %+v, want a named", p)
		}
		since := p.Since
		w.setUsage("b", executor.Usage{Memory: 300 * mib}) // a worse victim now, but a is on its way
		w.pass(3 * measureEvery)
		if p := w.reportedPressure(); p.Victim != "a" {
			t.Errorf("named %s while a is there", p.Victim)
		}
		w.stopTask(a, false)
		w.pass(3 * measureEvery)
		if p := w.reportedPressure(); p == nil || p.Victim != "b" || !p.Since.Equal(since) {
			t.Errorf("got %+v after a was stopped, want b named in the same pressure", p)
		}
		w.setFree(60 * mib) // above the threshold, but too close to it
		w.pass(time.Minute)
		if p := w.reportedPressure(); p == nil {
			t.Error("the pressure ended right at its threshold")
		}
		w.setFree(90 * mib)
		w.pass(4 * measureEvery)
		if p := w.reportedPressure(); p != nil {
			t.Errorf("it does not end: %+v", p)
		}
	})
}

// TestPressureNamesAnotherVictim: a victim that is not moved does not prevent other victims. The victim may belong to a
// daemon or fit on no other node. After all had their turn, the list starts again.
func TestPressureNamesAnotherVictim(t *testing.T) {
	const mib = cluster.MiB
	inWorld(t, func(w *world) {
		w.setFree(900 * mib)
		w.reserving("a", cluster.KindService, 50, 10*mib, 300*mib)
		w.reserving("b", cluster.KindService, 50, 10*mib, 200*mib)
		w.pass(10 * time.Second)
		w.setFree(30 * mib)
		w.pass(4 * measureEvery)
		for _, want := range []string{"a", "b", "a"} {
			if p := w.reportedPressure(); p == nil || p.Victim != want {
				t.Fatalf("got %+v, want %s named", p, want)
			}
			w.pass(victimEvery)
		}
	})
}
