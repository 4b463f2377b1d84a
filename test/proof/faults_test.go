package proof_test

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/netlab"
)

// fault is one way to break the fleet. Do returns when the fault is over. Processes that it ended run again then; the
// caller repairs links that it cut.
type fault struct {
	name string
	do   func(*world)
}

// faults are all of them; a plain run of the test uses each once.
var faults = []fault{
	{"leader-killed", func(w *world) {
		w.killed(w.Leader())
	}},
	{"all-killed", func(w *world) {
		for _, s := range w.Servers {
			s.Kill()
		}
		w.last(time.Second, 2*time.Second)
		for _, s := range w.Servers {
			s.Begin()
		}
		for _, s := range w.Servers {
			s.Ready()
		}
	}},
	{"rolling-restart", func(w *world) {
		for _, s := range w.Servers {
			s.Terminate()
			s.Start()
			w.Voters(servers)
		}
	}},
	{"leader-paused", func(w *world) {
		leader := w.Leader()
		leader.Signal(syscall.SIGSTOP)
		w.last(30*time.Second, 31*time.Second)
		leader.Signal(syscall.SIGCONT)
	}},
	{"servers-parted", func(w *world) {
		a, b := w.twoServers()
		w.lab.Part(a, b)
		w.last(5*time.Second, 10*time.Second)
	}},
	{"servers-parted-one-way", func(w *world) {
		a, b := w.twoServers()
		w.lab.Cut(a, b)
		w.last(5*time.Second, 10*time.Second)
	}},
	{"leader-alone", func(w *world) {
		leader := w.hostOf(w.Leader())
		for _, h := range append(slices.Clip(w.serverHosts), w.storeHost) {
			if h != leader {
				w.lab.Part(h, leader)
			}
		}
		w.last(5*time.Second, 10*time.Second)
	}},
	{"leader-mute", func(w *world) { // it receives, and its messages are lost
		leader := w.hostOf(w.Leader())
		for _, h := range append(slices.Concat(w.serverHosts, w.agentHosts), w.storeHost) {
			if h != leader {
				w.lab.Cut(leader, h)
			}
		}
		w.last(5*time.Second, 10*time.Second)
	}},
	{"agents-parted", func(w *world) {
		for _, h := range w.agentHosts[:agents/2] {
			w.lab.Isolate(h)
		}
		w.last(5*time.Second, 15*time.Second)
	}},
	{"agents-parted-one-way", func(w *world) {
		server := w.serverHosts[w.random.IntN(servers)]
		for _, h := range w.agentHosts {
			if w.random.IntN(2) == 0 {
				w.lab.Cut(h, server)
			} else {
				w.lab.Cut(server, h)
			}
		}
		w.last(5*time.Second, 15*time.Second)
	}},
	{"disk-full", func(w *world) {
		w.disk.Fill()
		w.last(4*time.Second, 8*time.Second)
		w.disk.Free()
		if s := w.Servers[servers-1]; !s.Alive() {
			w.t.Logf("%s ended with its disk full:\n%s", s.Host.Name, tail(s.Output()))
			s.Start()
		}
	}},
	{"slow-links", func(w *world) {
		for _, h := range w.serverHosts {
			h.Slow(7071, 60*time.Millisecond)
			h.Slow(7072, 60*time.Millisecond)
		}
		dead := w.Leader() // so that all connect again, over the slow link
		dead.Kill()
		w.another(dead)
		w.last(2*time.Second, 5*time.Second)
		dead.Start()
		w.last(3*time.Second, 6*time.Second)
		for _, h := range w.serverHosts {
			h.Slow(7071, 0)
			h.Slow(7072, 0)
		}
	}},
}

// killed kills a server and starts it again after a while.
func (w *world) killed(s *harness.Server) {
	s.Kill()
	w.last(2*time.Second, 5*time.Second)
	s.Start()
}

// another waits until another server than the killed one leads, and has placed a new task.
func (w *world) another(dead *harness.Server) {
	w.t.Helper()
	if leader := w.Leader(); leader == dead { // Leader waits for a living leader
		w.t.Errorf("%s leads, which was killed", leader.Host.Name)
	}
	name := fmt.Sprintf("slow-%d", w.random.Uint32())
	file := w.Write(name+".yaml", fmt.Sprintf(job, name, 1, w.effects))
	w.Berth("run", "--detach", file).Want(w.t, 0)
	w.Eventually(settleLimit, func() error {
		page, err := w.Client().Tasks(w.t.Context(), client.TaskFilter{Job: name, All: true}, client.ListOptions{})
		if err == nil && !slices.ContainsFunc(page.Items, func(v api.TaskView) bool { return v.Node != "" }) {
			err = fmt.Errorf("no task of %s is placed while the links are slow", name)
		}
		return err
	})
}

// last waits for a time between the two.
func (w *world) last(least, most time.Duration) {
	testkit.Pause(w.t.Context(), least+time.Duration(w.random.Int64N(int64(most-least))))
}

// twoServers returns the leader and another server.
func (w *world) twoServers() (a, b *netlab.Host) {
	leader := w.hostOf(w.Leader())
	i := slices.Index(w.serverHosts, leader)
	other := w.serverHosts[(i+1+w.random.IntN(servers-1))%servers]
	if w.random.IntN(2) == 0 {
		return other, leader
	}
	return leader, other
}

func (w *world) hostOf(s *harness.Server) *netlab.Host {
	return w.serverHosts[slices.Index(w.Servers, s)]
}
