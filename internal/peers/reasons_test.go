package peers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// leaderAPI returns the address of the leader that a server knows, "" if there is none or its address is unknown.
func leaderAPI(p *member) string {
	s, _ := p.leader(cluster.DefaultDomain)
	return s.API
}

func waits(sentence string, tasks ...cluster.TaskID) cluster.WaitingGroup {
	g := cluster.WaitingGroup{
		Sentence: sentence,
		Refusals: []cluster.RefusalCount{
			{Refusal: cluster.Refusal{Code: cluster.ReasonShortMemory, Short: 9}, Nodes: 2},
		},
	}
	for _, task := range tasks {
		g.Tasks = append(g.Tasks, cluster.TaskRange{First: task})
	}
	return g
}

func (m *member) why(task cluster.TaskID) string {
	w, ok := m.Waiting(cluster.DefaultDomain, task)
	if !ok {
		return ""
	}
	if w.Task != task {
		m.group.t.Errorf("requested %s, got %s", task, w.Task)
	}
	return w.Sentence
}

func TestReasonsComeFromTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		g.lead("s1", 1)
		memory := waits("memory", "a", "b")
		memory.Promise = &cluster.Promise{Node: "n7", At: time.Unix(9, 0).UTC(), After: "d"}
		disk := waits("disk", "c")
		disk.Tasks = append(disk.Tasks, cluster.TaskRange{First: "c.j.1.s.5", Further: 1_000_000})
		s1.plane.set(1, memory, disk)
		pass(2 * time.Second)
		if got := s1.why("c"); got != "disk" {
			t.Errorf("the leader says %q", got)
		}
		if n := s1.plane.asks(); n != 0 {
			t.Errorf("the leader was asked %d times, and no reader asked", n)
		}
		// The first question waits for a copy.
		for task, want := range map[cluster.TaskID]string{
			"a": "memory", "b": "memory", "c": "disk", "d": "",
			"c.j.1.s.5": "disk", "c.j.1.s.1000005": "disk", "c.j.1.s.1000006": "", "c.j.1.s.4": "",
		} {
			if got := s2.why(task); got != want {
				t.Errorf("%s: got %q, want %q", task, got, want)
			}
		}
		got, _ := s2.Waiting(cluster.DefaultDomain, "a")
		want := cluster.Waiting{
			Task: "a", Refusals: memory.Refusals, Sentence: "memory", Promise: memory.Promise,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		pass(10 * time.Second)
		if n := s1.plane.asks(); n != 1 {
			t.Errorf("the leader was asked %d times, want once", n)
		}
		// While clients read the reasons, the leader gets at most one request a second, and the change arrives.
		s1.plane.set(2, waits("ports", "a"))
		for range 100 {
			s2.why("a")
			pass(100 * time.Millisecond)
		}
		if n := s1.plane.asks(); n < 8 || n > 12 {
			t.Errorf("the leader was asked %d times in 10 s, want about 10", n)
		}
		if got := s2.why("a") + s2.why("c"); got != "ports" {
			t.Errorf("got %q, want ports for a alone", got)
		}
	})
}

// TestVictimsComeFromTheLeader expects the victims at each server. No call waits for a copy.
func TestVictimsComeFromTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		g.lead("s1", 1)
		want := []cluster.Victim{{UUID: "u1", For: "a", ForAttempt: 2, Priority: 900, Node: "n1"}}
		s1.plane.mu.Lock()
		s1.plane.victims = want
		s1.plane.mu.Unlock()
		s1.plane.set(1)
		pass(2 * time.Second)
		if diff := cmp.Diff(want, s1.Victims(cluster.DefaultDomain)); diff != "" {
			t.Errorf("at the leader (-want +got):\n%s", diff)
		}
		began := time.Now()
		if got := s2.Victims(cluster.DefaultDomain); got != nil || time.Since(began) != 0 {
			t.Errorf("the first answer was %+v after %s, want none immediately", got, time.Since(began))
		}
		pass(2 * time.Second)
		if diff := cmp.Diff(want, s2.Victims(cluster.DefaultDomain)); diff != "" {
			t.Errorf("at another server (-want +got):\n%s", diff)
		}
	})
}

// TestReasonsOfARecovery has the leader give one reason for all tasks: a group without tasks.
func TestReasonsOfARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		g.lead("s1", 1)
		s1.plane.set(1, waits("the store went back"))
		pass(2 * time.Second)
		for _, task := range []cluster.TaskID{"a", "b"} {
			if got := s2.why(task); got != "the store went back" {
				t.Errorf("%s: got %q from a follower, want what the leader says of all", task, got)
			}
		}
		s1.plane.set(2, waits("memory", "a"))
		pass(2 * time.Second)
		s2.why("a")
		pass(2 * time.Second)
		if got := s2.why("a") + s2.why("b"); got != "memory" {
			t.Errorf("after the recovery: got %q, want memory for a alone", got)
		}
	})
}

func TestReasonsOfANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2, s3 := g.start("s1", 0), g.start("s2", 0), g.start("s3", 0)
		g.lead("s1", 1)
		s1.plane.set(7, waits("old", "a"))
		s2.plane.set(7, waits("new", "a")) // its versions are its own
		pass(2 * time.Second)
		if got := s3.why("a"); got != "old" {
			t.Errorf("got %q", got)
		}
		if api := leaderAPI(s3); api != address("s1") {
			t.Errorf("leader: got %q", api)
		}
		g.lead("s2", 2)
		pass(2 * time.Second)
		s3.why("a")
		pass(100 * time.Millisecond)
		if got := s3.why("a"); got != "new" {
			t.Errorf("got %q, want the new leader's", got)
		}
		if got := s2.why("a"); got != "new" || !s2.Leads(cluster.DefaultDomain) || s1.Leads(cluster.DefaultDomain) {
			t.Errorf("s2 leads and says %q", got)
		}
		if api := leaderAPI(s1); api != address("s2") {
			t.Errorf("leader: got %q", api)
		}
	})
}

func TestUnreachableLeaderDelaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		g.lead("s1", 1)
		s1.plane.set(1, waits("memory", "a"))
		pass(2 * time.Second)
		if got := s2.why("a"); got != "memory" {
			t.Errorf("got %q", got)
		}
		s1.intercept(func(r *http.Request) { <-r.Context().Done() }) // it hangs
		pass(5 * time.Second)
		if got := s2.why("a"); got != "memory" {
			t.Errorf("got %q, want the copy for a while", got)
		}
		pass(20 * time.Second)
		began := time.Now()
		for range 1000 {
			if got := s2.why("a"); got != "" {
				t.Errorf("got %q from an old copy", got)
			}
		}
		if took := time.Since(began); took > firstCopyTimeout {
			t.Errorf("a thousand questions took %v, want %v at most", took, firstCopyTimeout)
		}
	})
}

// TestReasonsOfALongQueueAreFetchedRarely checks that the leader and the other servers spend a small part of their time
// on the reasons of many tasks, and that a copy does not become too old for use meanwhile.
func TestReasonsOfALongQueueAreFetchedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		g.lead("s1", 1)
		pass(2 * time.Second)
		var takes atomic.Int64
		s1.intercept(func(*http.Request) { time.Sleep(time.Duration(takes.Load())) })
		for _, c := range []struct {
			took time.Duration
			most int
		}{
			{50 * time.Millisecond, 58}, {500 * time.Millisecond, 12}, {4 * time.Second, 7}, {9 * time.Second, 5},
		} {
			takes.Store(int64(c.took))
			before := s1.plane.asks()
			for i := range 600 {
				s1.plane.set(uint64(i+1), waits("memory", "a"))
				pass(100 * time.Millisecond)
				if got := s2.why("a"); got != "memory" && i > 150 {
					t.Errorf("answers that take %v: %q after %d s", c.took, got, i/10)
				}
			}
			if n := s1.plane.asks() - before; n > c.most || n < c.most*3/4 {
				t.Errorf("answers that take %v: %d requests in a minute, want %d at most", c.took, n, c.most)
			}
		}
	})
}

func TestNoServerLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1 := g.start("s1", 0)
		pass(time.Second)
		if got := s1.why("a"); got != "" || leaderAPI(s1) != "" || s1.Leads(cluster.DefaultDomain) {
			t.Errorf("got %q", got)
		}
		g.lead("gone", 1)
		pass(2 * time.Second)
		if got := s1.why("a"); got != "" || leaderAPI(s1) != "" {
			t.Errorf("got %q", got)
		}
	})
}

func TestServerRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		started := time.Now().UTC()
		s1 := g.start("s1", 0)
		pass(time.Second)
		want := cluster.Server{ID: "s1", Name: "name-s1", API: address("s1"), Version: "test", Started: started}
		e, ok := s1.tables.Snapshot().Server("s1")
		if !ok {
			t.Fatal("there is no record")
		}
		if diff := cmp.Diff(want, *e.Value); diff != "" {
			t.Error(diff)
		}
		joined := 0
		for b := range s1.tables.Snapshot().EventBatches() {
			for _, ev := range b.Value.Events {
				if ev.Type == "server.joined" {
					joined++
				}
			}
		}
		if joined != 1 {
			t.Errorf("%d such events, want 1", joined)
		}
		// The removal of a member deletes its record. The running server does not write the record again.
		g.remove("berth/server/s1")
		pass(time.Minute)
		if _, ok := s1.tables.Snapshot().Server("s1"); ok {
			t.Error("it came back")
		}
		s1.stop()
		s1 = g.start("s1", 0)
		pass(time.Second)
		if _, ok := s1.tables.Snapshot().Server("s1"); !ok {
			t.Error("it is not written at the next start")
		}
	})
}

func TestServerRecordIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		var tries atomic.Int32
		old := cluster.Server{ID: "s1", Name: "old"}
		engine := g.store.Open(memory.Hooks{Before: func(ctx context.Context, _ []store.Group) error {
			switch tries.Add(1) {
			case 1:
				return errors.New("no quorum")
			case 2:
				g.put(g.store, "berth/server/s1", &old) // a concurrent write
			}
			return nil
		}})
		tables := store.NewTables(store.TablesConfig{Engine: engine})
		self := cluster.Server{ID: "s1", Name: "new", Started: time.Now().UTC()}
		p := New(Config{
			Server: self, Engine: engine, Tables: tables, Local: &agents{},
			Clock: func() time.Duration { return 0 },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = tables.Run(ctx) })
		all.Go(func() { _ = p.Run(ctx) })
		pass(2 * time.Second)
		e, ok := tables.Snapshot().Server("s1")
		if !ok || e.Value.Name != "new" || tries.Load() != 3 {
			t.Errorf("got %+v after %d tries, want the new record after 3", e.Value, tries.Load())
		}
		if done, err := p.recorder.writeRecord(ctx); !done || err != nil || tries.Load() != 3 {
			t.Errorf("an unchanged record was written again: %v %v", done, err)
		}
		cancel()
		all.Wait()
		_ = engine.Close()
	})
}

func TestLinksFollowTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		pass(2 * time.Second)
		if st := s1.Status(); len(st) != 1 || !st[0].Reached || st[0].Server.ID != "s2" {
			t.Errorf("got %+v", st)
		}
		g.remove("berth/server/s2")
		pass(2 * time.Second)
		if st := s1.Status(); len(st) != 0 || s1.link("s2") != nil {
			t.Errorf("got %+v, want the link gone", st)
		}
		g.put(g.store, "berth/server/s2", &cluster.Server{ID: "s2", API: "http://elsewhere"})
		pass(2 * time.Second)
		if st := s1.Status(); len(st) != 1 || st[0].Reached || st[0].Problem == "" {
			t.Errorf("got %+v, want it unreachable", st)
		}
		g.net.mu.Lock()
		g.net.servers["http://elsewhere"] = g.net.servers[address("s1")] // a wrong address: it is s1 itself
		g.net.mu.Unlock()
		pass(2 * time.Second)
		if st := s1.Status(); st[0].Reached {
			t.Errorf("got %+v, want the wrong address noticed", st)
		}
		g.put(g.store, "berth/server/s2", &cluster.Server{ID: "s2", API: address("s2")})
		pass(2 * time.Second)
		if st := s1.Status(); !st[0].Reached || st[0].Problem != "" {
			t.Errorf("got %+v, want it reached again", st)
		}
		g.put(g.store, "berth/server/s2", &cluster.Server{ID: "s2"}) // for its own machine only
		pass(2 * time.Second)
		if st := s1.Status(); st[0].Reached || st[0].Problem == "" {
			t.Errorf("got %+v", st)
		}
		_ = s2
	})
}
