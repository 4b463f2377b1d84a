package peers

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
)

func TestPulsesReachEveryServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 5)
		// No two boot-time clocks are alike.
		s1, s2, s3 := g.start("s1", 0), g.start("s2", time.Hour), g.start("s3", -time.Hour)
		pass(3 * time.Second)
		s1.beat("n1", 5, 7, &cluster.NodeStats{Tasks: 3})
		pass(2500 * time.Millisecond)
		for _, m := range []*member{s1, s2, s3} {
			age, err := m.age("n1", 5, 7)
			if err != nil || age != 2500*time.Millisecond {
				t.Errorf("at %s: age %v, %v; want 2.5s", m.id, age, err)
			}
			if p, _ := m.tables.Pulse("n1"); p.Next != 5*time.Second || p.Stats == nil || p.Stats.Tasks != 3 {
				t.Errorf("at %s: got %+v, want the promise and the statistics", m.id, p)
			}
		}
		s1.beat("n1", 5, 8, s1.stats("n1"))
		pass(1500 * time.Millisecond)
		if p, _ := s2.tables.Pulse("n1"); p.Seq != 8 || p.Stats == nil {
			t.Errorf("got %+v, want the statistics kept that did not change", p)
		}
		for _, d := range s2.digests {
			for _, b := range d.Pulses {
				if b.Seq == 8 && b.Stats != nil && b.Age < 1e6 {
					t.Error("statistics were sent that did not change")
				}
			}
		}
	})
}

func (m *member) stats(node string) *cluster.NodeStats {
	p, _ := m.tables.Pulse(node)
	return p.Stats
}

func TestNoEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2, s3 := g.start("s1", 0), g.start("s2", 0), g.start("s3", 0)
		pass(2 * time.Second)
		for seq := range uint64(50) {
			s1.beat("n1", 1, seq, nil)
			pass(time.Second)
		}
		if n := s3.pulsesFrom("s2", "n1") + s1.pulsesFrom("s2", "n1"); n > 0 {
			t.Errorf("s2 sent %d pulses of a node that is not its own", n)
		}
		if s3.pulsesFrom("s1", "n1") < 40 || s2.pulsesFrom("s1", "n1") < 40 {
			t.Error("s1 did not send its node's pulse")
		}
	})
}

func TestNewestSessionWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 6)
		s1, s2, s3 := g.start("s1", 0), g.start("s2", 0), g.start("s3", 0)
		s1.beat("n1", 5, 90, nil)
		pass(3 * time.Second)
		s2.beat("n1", 6, 1, nil) // the agent moved
		s1.beat("n1", 5, 91, nil)
		pass(40 * time.Second)
		for _, m := range []*member{s1, s2, s3} {
			if age, err := m.age("n1", 6, 1); err != nil || age != 40*time.Second {
				t.Errorf("age %v, %v; want 40s", age, err)
			}
		}
		if known, here := s3.holder("n1"); known != "s2" || here {
			t.Errorf("holder: got %q %v, want s2", known, here)
		}
		for _, m := range []*member{s1, s3} {
			if got := m.Holder("n1"); got != "s2" {
				t.Errorf("%s says that n1 is at %q, want s2", m.id, got)
			}
		}
		s2.agents.hold("n1", true)
		if got := s2.Holder("n1"); got != "s2" {
			t.Errorf("s2 says that n1 is at %q, want itself", got)
		}
		if got := s3.Holder("n9"); got != "" {
			t.Errorf("an unknown node is at %q", got)
		}
		s1.agents.hold("n1", true) // it did not notice
		if known, here := s1.holder("n1"); known != "s2" || here {
			t.Errorf("holder: got %q %v, want s2 in spite of the older session here", known, here)
		}
	})
}

func TestAllIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		s1.beat("n1", 1, 1, &cluster.NodeStats{Tasks: 9})
		pass(3 * time.Second)
		before := s2.pulsesFrom("s1", "n1")
		if before == 0 {
			t.Fatal("nothing was sent")
		}
		pass(31 * time.Second)
		if n := s2.pulsesFrom("s1", "n1"); n != before+1 {
			t.Errorf("%d pulses in 31 s, want one more", n-before)
		}
		// A restarted server has no pulses. The others send it all pulses in one message.
		s2.stop()
		pass(5 * time.Second)
		s2 = g.start("s2", 0)
		pass(2500 * time.Millisecond)
		if _, err := s2.age("n1", 1, 1); err != nil {
			t.Error(err)
		}
		if st := s2.stats("n1"); st == nil || st.Tasks != 9 {
			t.Errorf("statistics: got %+v, want them sent again", st)
		}
	})
}

func TestQuickRestartIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		s1.beat("n1", 1, 1, nil)
		pass(3 * time.Second)
		s2.stop()
		s2 = g.start("s2", 0) // before the next digest: its sender sees no broken connection, but another process
		pass(2500 * time.Millisecond)
		if _, err := s2.age("n1", 1, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestHangingServerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2, s3 := g.start("s1", 0), g.start("s2", 0), g.start("s3", 0)
		pass(3 * time.Second)
		hang := make(chan struct{})
		s2.intercept(func(r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		})
		for seq := uint64(1); seq <= 20; seq++ {
			s1.beat("n1", 1, seq, nil)
			pass(1100 * time.Millisecond)
			if _, err := s3.age("n1", 1, seq); err != nil {
				t.Fatal(err)
			}
		}
		for _, st := range s1.Status() {
			if (st.Server.ID == "s2") == st.Reached {
				t.Errorf("status of %s: %+v", st.Server.ID, st)
			}
			if st.Server.ID == "s2" && !strings.Contains(st.Problem, "did not answer within 3s") {
				t.Errorf("problem: got %q", st.Problem)
			}
		}
		close(hang)
		pass(5 * time.Second)
		if _, err := s2.age("n1", 1, 20); err != nil {
			t.Error(err)
		}
	})
}

func TestPartitionHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		g.status("n2", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", time.Minute)
		pass(3 * time.Second)
		g.net.set("s1", "s2", true) // one way only
		for seq := uint64(1); seq <= 10; seq++ {
			s1.beat("n1", 1, seq, nil)
			s2.beat("n2", 1, seq, nil)
			pass(time.Second)
		}
		pass(500 * time.Millisecond)
		if _, err := s1.age("n2", 1, 10); err != nil {
			t.Error(err)
		}
		if _, err := s2.age("n1", 1, 10); err == nil {
			t.Error("s2 received through the cut")
		}
		g.net.set("s1", "s2", false)
		pass(2500 * time.Millisecond)
		if age, err := s2.age("n1", 1, 10); err != nil || age != 4*time.Second {
			t.Errorf("age %v, %v; want 4s", age, err)
		}
	})
}

func TestLateDigestIsNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", time.Hour)
		pass(5 * time.Second)
		s2.intercept(func(*http.Request) { time.Sleep(2500 * time.Millisecond) }) // in-bubble: on its way for long
		for seq := uint64(1); seq <= 10; seq++ {
			s1.beat("n1", 1, seq, nil)
			for range 7 {
				pass(time.Second)
				mine, _ := s1.tables.Pulse("n1")
				theirs, ok := s2.tables.Pulse("n1")
				if !ok || theirs.Seq != mine.Seq {
					continue
				}
				truth, known := s1.config.Clock()-mine.At, s2.config.Clock()-theirs.At
				if known < truth || known > truth+2*time.Second+500*time.Millisecond {
					t.Errorf("sequence %d: sent an age of %v, true is %v", seq, known, truth)
				}
			}
		}
		if _, err := s2.age("n1", 1, 10); err != nil {
			t.Error(err)
		}
	})
}

func TestClocksThatJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		pass(3 * time.Second)
		for i, d := range []time.Duration{-time.Hour, 2 * time.Hour, -time.Second, 0} {
			seq := uint64(i + 1)
			s1.beat("n1", 1, seq, nil)
			s1.jump(d)
			s2.jump(-d)
			pass(3 * time.Second)
			age, err := s2.age("n1", 1, seq)
			if err != nil || age < 0 {
				t.Errorf("after a jump of %v: age %v, %v; want none below 0", d, age, err)
			}
		}
		for _, d := range s2.digests {
			for _, b := range d.Pulses {
				if b.Age < 0 {
					t.Errorf("an age of %d was sent", b.Age)
				}
			}
		}
		if age, _ := s2.age("n1", 1, 4); age != 3*time.Second {
			t.Errorf("with steady clocks again: age %v, want 3s", age)
		}
	})
}

func TestForgottenNodeBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 57)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		s1.beat("n1", 57, 1, nil)
		pass(3 * time.Second)
		g.remove("berth/status/n1")
		pass(time.Second)
		for _, m := range []*member{s1, s2} {
			if p, ok := m.tables.Pulse("n1"); ok {
				t.Errorf("%s still knows %+v", m.id, p)
			}
		}
		// A late digest must not displace a session whose numbers begin at 1 again.
		g.status("n1", 1)
		s2.tables.SetPulse("n1", cluster.Pulse{Session: 57, At: s2.config.Clock()})
		pass(45 * time.Second)
		s1.beat("n1", 1, 1, nil)
		pass(2 * time.Second)
		if _, err := s2.age("n1", 1, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestDigestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		const nodes = maxPulsesPerDigest*2 + 1
		s1 := g.start("s1", 0)
		for i := range nodes {
			s1.beat(fmt.Sprintf("n%d", i), 1, 1, nil)
		}
		s2 := g.start("s2", 0)
		pass(3 * time.Second)
		if n := len(s2.tables.Pulses()); n != nodes {
			t.Errorf("s2 knows %d nodes, want %d", n, nodes)
		}
		for _, d := range s2.digests {
			if len(d.Pulses) > maxPulsesPerDigest {
				t.Errorf("a digest of %d", len(d.Pulses))
			}
		}
		if n := s1.Status()[0].Nodes + s2.Status()[0].Nodes; n != nodes {
			t.Errorf("status counts %d nodes, want %d", n, nodes)
		}
	})
}

// post hands a server a digest of s2, and returns its answer.
func (m *member) post(body string) (int, string) {
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(m.group.t.Context(), http.MethodPost, pathDigest, strings.NewReader(body))
	r.Header.Set(signature, "s2")
	m.Handler().ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

func TestOddDigests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1 := g.start("s1", time.Hour)
		pass(time.Second)
		ok := `"echo":{"life":"` + s1.startID + `","clock":3600000000,"since":0},`
		many := strings.Repeat(`{"n":"a","s":1,"a":0},`, maxPulsesPerDigest) + `{"n":"a","s":1,"a":0}`
		for name, c := range map[string]struct {
			body string
			want int
		}{
			"unknown fields": {`{"wire":9,"wire_min":1,"server":"s2",` + ok +
				`"new":{"x":1},"no":1,"pulses":[{"n":"a1","s":1,"a":0,"new":[2]}]}`, 200},
			"no version": {
				`{"server":"s2",` + ok + `"no":1,"life":"2","pulses":[{"n":"b0","s":1,"a":0}]}`,
				http.StatusUpgradeRequired,
			},
			"too new": {`{"wire":9,"wire_min":2,"server":"s2"}`, http.StatusUpgradeRequired},
			"of another server": {
				`{"wire":1,"server":"s3",` + ok + `"no":1,"life":"8","pulses":[{"n":"b3","s":1,"a":0}]}`,
				http.StatusForbidden,
			},
			"of itself": {`{"wire":1,"server":"s1"}`, http.StatusForbidden},
			"of no server": {
				`{"wire":1,` + ok + `"no":1,"life":"9","pulses":[{"n":"b4","s":1,"a":0}]}`,
				http.StatusForbidden,
			},
			"not JSON": {`{`, http.StatusBadRequest},
			"too many": {`{"wire":1,"server":"s2","pulses":[` + many + `]}`, http.StatusRequestEntityTooLarge},
			"negative age": {`{"wire":1,"server":"s2",` + ok +
				`"no":1,"life":"3","pulses":[{"n":"a3","s":1,"a":-5000000,"x":-1}]}`, 200},
			"long promise": {`{"wire":1,"server":"s2",` + ok +
				`"no":1,"life":"4","pulses":[{"n":"a4","s":1,"a":0,"x":9000000000000}]}`, 200},
			"no session": {`{"wire":1,"server":"s2",` + ok + `"no":1,"life":"5","pulses":[{"n":"b1","a":0}]}`, 200},
			"no name": {
				`{"wire":1,"server":"s2",` + ok + `"no":1,"life":"6","pulses":[{"n":"../b2","s":1,"a":0}]}`,
				200,
			},
			"echo of another": {
				`{"wire":1,"server":"s2","echo":{"life":"x","clock":99,"since":1},"pulses":[{"n":"b5","s":1,"a":0}]}`, 200,
			},
			"echo from the future": {`{"wire":1,"server":"s2","no":1,"life":"7","echo":{"life":"` + s1.startID +
				`","clock":9000000000000,"since":1},"pulses":[{"n":"a6","s":1,"a":0}]}`, 200},
		} {
			if code, answer := s1.post(c.body); code != c.want {
				t.Errorf("%s: got %d %s, want %d", name, code, answer, c.want)
			}
		}
		now := s1.config.Clock()
		pulses := s1.tables.Pulses()
		for node, p := range pulses {
			if p.At > now || p.Next < 0 || p.Next > 10*time.Minute || node[0] != 'a' {
				t.Errorf("%s: %+v was taken", node, p)
			}
		}
		if len(pulses) != 4 {
			t.Errorf("got %d nodes, want 4", len(pulses))
		}
	})
}

// promised records a sign of life of one of the server's own agents, which is idle.
func (m *member) promised(node string, session, seq uint64) {
	m.tables.SetPulse(node, cluster.Pulse{Session: session, Seq: seq, At: m.config.Clock(), Next: time.Minute})
}

// due returns the time until a server expects the next sign of life of a node.
func (m *member) due(node string) time.Duration {
	p, _ := m.tables.Pulse(node)
	return p.At + p.Next - m.config.Clock()
}

// wantDue checks the time until a server expects the next sign of life of a node.
func (m *member) wantDue(node string, want time.Duration, why string) {
	m.group.t.Helper()
	if got := m.due(node); got != want {
		m.group.t.Errorf("%s: %s expects %s in %v, want %v", why, m.id, node, got, want)
	}
}

// wantSoon wants a node to be expected soon, and not in the past.
func (m *member) wantSoon(node, why string) {
	m.group.t.Helper()
	if got := m.due(node); got <= 0 || got > reconnectTime {
		m.group.t.Errorf("%s: %s expects %s in %v, want within %v", why, m.id, node, got, reconnectTime)
	}
}

// TestHolderOfAnOlderSessionIsNotNamed has an agent leave the server of its newest session. Until another server says
// that it has a later one, no server is named: neither this one nor that of an earlier session.
func TestHolderOfAnOlderSessionIsNotNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 5)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		s2.beat("n1", 5, 1, nil)
		pass(3 * time.Second)
		if got := s1.Holder("n1"); got != "s2" {
			t.Errorf("n1 is at %q, want s2", got)
		}
		g.status("n1", 6)
		s1.beat("n1", 6, 1, nil)
		if got := s1.Holder("n1"); got != "" {
			t.Errorf("n1 is at %q after its session here has ended, want an empty name", got)
		}
		g.status("n1", 7)
		s2.beat("n1", 7, 1, nil)
		pass(3 * time.Second)
		if got := s1.Holder("n1"); got != "s2" {
			t.Errorf("n1 is at %q after its return, want s2", got)
		}
	})
}

// TestIntervalsOfAServerThatIsGone has an idle agent at a server that dies. The agent is expected at another server
// soon, not at the end of its long interval (P6.2).
func TestIntervalsOfAServerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		g.status("n2", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", time.Hour)
		pass(5 * time.Second)
		s1.promised("n2", 1, 1)
		s2.promised("n1", 1, 1)
		pass(3 * time.Second)
		s2.stop()
		pass(4 * time.Second)
		s1.wantDue("n1", 53*time.Second, "the server is away for a moment")
		pass(3 * time.Second)
		s1.wantSoon("n1", "the server is gone")
		if got := s1.Holder("n1"); got != "" {
			t.Errorf("n1 is at %q, which is gone", got)
		}
		before := s1.due("n1")
		pass(5 * time.Second)
		s1.wantDue("n1", before-5*time.Second, "it was cut once")
		s1.wantDue("n2", 45*time.Second, "the server's own agent")
		// The server comes back, and its agent with it.
		s2 = g.start("s2", time.Hour)
		s2.promised("n1", 2, 1)
		pass(3 * time.Second)
		s1.wantDue("n1", 57*time.Second, "the server is back")
		s2.stop()
		pass(10 * time.Second)
		s1.wantSoon("n1", "the server is gone again")
	})
}

// TestIntervalsOfAConnectedServer breaks each direction between two servers separately. The agents stay where they are,
// and keep their intervals.
func TestIntervalsOfAConnectedServer(t *testing.T) {
	for name, way := range map[string][2]string{
		"it does not reach us": {"s2", "s1"},
		"we do not reach it":   {"s1", "s2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newServerGroup(t)
				g.status("n1", 1)
				s1, s2 := g.start("s1", 0), g.start("s2", 0)
				pass(5 * time.Second)
				s2.promised("n1", 1, 1)
				pass(3 * time.Second)
				g.net.set(way[0], way[1], true)
				pass(20 * time.Second)
				s1.wantDue("n1", 37*time.Second, "the other way works")
				g.net.set(way[1], way[0], true)
				pass(8 * time.Second)
				s1.wantSoon("n1", "nothing comes through any more")
				g.net.set(way[0], way[1], false)
				g.net.set(way[1], way[0], false)
				pass(3 * time.Second)
				s1.wantDue("n1", 26*time.Second, "the network is repaired")
			})
		})
	}
}

// TestIntervalsOfARemovedServer deletes a server's record.
func TestIntervalsOfARemovedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		pass(5 * time.Second)
		s2.promised("n1", 1, 1)
		pass(3 * time.Second)
		g.remove("berth/server/s2")
		pass(5 * time.Second)
		s1.wantDue("n1", 52*time.Second, "it still sends its agent's pulse")
		s2.stop()
		pass(4 * time.Second)
		s1.wantSoon("n1", "it is silent")
	})
}

// TestServersSpeakForThemselves shows the certificates of others than the digest and the stream name.
func TestServersSpeakForThemselves(t *testing.T) {
	sites := newSites(t, "s1", "s2")
	trust := newTrust(t)
	for name, c := range map[string]struct {
		keeper *pki.Keeper
		server string
		want   int
	}{
		"a server for itself":    {sites["s2"].keeper, "s2", http.StatusOK},
		"a server for another":   {sites["s2"].keeper, "s3", http.StatusForbidden},
		"a server for the asked": {sites["s2"].keeper, "s1", http.StatusForbidden},
		"a node of that name": {
			identity(t, sites["s2"].trust, pki.Subject{Role: cluster.RoleNode, Name: "s2"}),
			"s2", http.StatusForbidden,
		},
		"no server":               {nil, "s2", http.StatusForbidden},
		"another authority's own": {identity(t, trust, pki.Subject{Role: cluster.RoleServer, Name: "s2"}), "s2", 0},
	} {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		if c.keeper != nil {
			config.GetClientCertificate = c.keeper.ClientTLS().GetClientCertificate
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		for path, body := range map[string]string{
			pathDigest:  fmt.Sprintf(`{"wire":1,"server":%q}`, c.server),
			pathStreams: opening(fmt.Sprintf(`{"wire":1,"server":%q,"node":"n1"}`, c.server)),
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sites["s1"].config.Server.API+path,
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(r)
			got := 0
			if err == nil {
				got = resp.StatusCode
				_ = resp.Body.Close()
			}
			want := c.want
			if want == http.StatusOK && path == pathStreams {
				want = http.StatusMisdirectedRequest // the request is allowed, but there is no such node
			}
			if got != want {
				t.Errorf("%s at %s: got %d (%v), want %d", name, path, got, err, want)
			}
		}
	}
}

// opening is the first frame of a stream.
func opening(body string) string {
	return string([]byte{frameOpen, 0, 0, 0, byte(len(body))}) + body
}

func TestLateIntervalIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1 := g.start("s1", 0)
		pass(time.Second)
		report := func(no, seq, next int) time.Duration {
			s1.post(fmt.Sprintf(`{"wire":1,"server":"s2","life":"x","no":%d,"echo":{"life":%q,"clock":1000000,"since":0},`+
				`"pulses":[{"n":"n1","s":1,"q":%d,"a":0,"x":%d}]}`, no, s1.startID, seq, next))
			p, _ := s1.tables.Pulse("n1")
			return p.Next / time.Microsecond
		}
		if got := report(2, 5, 60); got != 60 {
			t.Errorf("got %d, want 60", got)
		}
		if got := report(3, 5, 4); got != 4 {
			t.Errorf("its stream broke: got %d, want the shorter promise", got)
		}
		if got := report(1, 5, 70) + report(3, 5, 70); got != 8 {
			t.Errorf("got %d, want what came late left alone", got)
		}
		if got := report(4, 6, 60); got != 60 {
			t.Errorf("got %d, want 60", got)
		}
	})
}

func TestIncompatibleServerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		pass(2 * time.Second)
		s2.stop()
		l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		s := &http.Server{Protocols: protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(digestReply{version: version{7, 5}, Server: "s2", Life: "x"})
			})}
		g.net.mu.Lock()
		g.net.servers[address("s2")] = l
		g.net.mu.Unlock()
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		pass(5 * time.Second)
		if st := s1.Status()[0]; st.Reached ||
			!strings.Contains(st.Problem, "no common version: the other 5 to 7, this one 1 to 1") {
			t.Errorf("got %+v, want it named", st)
		}
		_ = s.Close()
		<-done
	})
}
