package apiserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// fakeMembers is an engine with members, as etcd has them.
type fakeMembers struct {
	mu      sync.Mutex
	members []store.Member
	health  store.EngineHealth
	err     error // of every call
	lags    bool  // learners do not catch up
	changes []string
}

func (f *fakeMembers) Members(context.Context) ([]store.Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members), f.err
}

func (f *fakeMembers) Health(context.Context) (store.EngineHealth, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health, f.err
}

func (f *fakeMembers) Promote(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lags {
		return store.ErrNotInSync
	}
	f.changes = append(f.changes, "promote "+id)
	for i := range f.members {
		if f.members[i].ID == id {
			f.members[i].Learner = false
		}
	}
	return f.err
}

func (f *fakeMembers) Remove(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, "remove "+id)
	f.members = slices.DeleteFunc(f.members, func(m store.Member) bool { return m.ID == id })
	return f.err
}

func (f *fakeMembers) set(change func(*fakeMembers)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// three returns three servers. s1 answers and leads.
func three() *fakeMembers {
	return &fakeMembers{
		members: []store.Member{
			{ID: "m1", Name: "s1", PeerURL: "https://10.0.0.1:7072", Leader: true, Self: true, Healthy: true},
			{ID: "m2", Name: "s2", PeerURL: "https://10.0.0.2:7072", Healthy: true},
			{ID: "m3", Name: "s3", PeerURL: "https://10.0.0.3:7072", Healthy: true},
		},
		health: store.EngineHealth{
			Writes: true, Quorum: true, Size: 10 << 20, InUse: 5 << 20, Quota: 8 << 30, DiskFree: 10 << 30,
			LowWater: 96 << 20,
		},
	}
}

func newFleetWorld(t *testing.T, members *fakeMembers, options ...func(*Config)) *world {
	t.Helper()
	first := func(c *Config) { c.Server.ID, c.Server.Members, c.Server.Health = "s1", members, members }
	w := newWorld(t, append([]func(*Config){first}, options...)...)
	records := map[string]any{"leader/default": cluster.Leader{Epoch: 3, Holder: "s1", Incarnation: 7}}
	for _, id := range []string{"1", "2", "3"} {
		records["server/s"+id] = cluster.Server{
			ID: "s" + id, Name: "host" + id, API: "https://10.0.0." + id + ":7071",
			Member: "m" + id, Version: "v", Wire: 1,
		}
	}
	w.put(records)
	return w
}

// refresh makes the server ask its engine again.
func (w *world) refresh() { w.server.health.Engine.Changed() }

func TestServers(t *testing.T) {
	members := three()
	reach := map[string]control.Reach{"s2": {Reached: true, For: time.Minute}, "s3": {Problem: "connection refused"}}
	w := newFleetWorld(t, members, func(c *Config) {
		c.Server.Reach = func() map[string]control.Reach { return reach }
	})
	type row struct {
		ID, Name     string
		State        api.ServerState
		Reason       string
		Self, Leader bool
		Engine       api.EngineMember
	}
	rows := func() (out []row) {
		w.refresh()
		for _, v := range read[api.Page[api.ServerView]](t, w.want(200, "GET", "/v1/servers", nil)).Items {
			r := row{ID: v.ID, Name: v.Name, State: v.State, Reason: v.Reason, Self: v.Self, Leader: v.Leader}
			if v.Engine != nil {
				r.Engine = *v.Engine
			}
			out = append(out, r)
		}
		return out
	}
	peer := func(n string) string { return "https://10.0.0." + n + ":7072" }
	want := []row{
		{
			"s1", "host1", api.ServerUp, "", true, true,
			api.EngineMember{ID: "m1", Peer: peer("1"), Leader: true, Healthy: true},
		},
		{"s2", "host2", api.ServerUp, "", false, false, api.EngineMember{ID: "m2", Peer: peer("2"), Healthy: true}},
		{
			"s3", "host3", api.ServerUp, "connection refused", false, false,
			api.EngineMember{ID: "m3", Peer: peer("3"), Healthy: true},
		},
	}
	if diff := cmp.Diff(want, rows()); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	members.set(func(f *fakeMembers) {
		f.members[2].Healthy = false
		f.members = append(f.members, store.Member{ID: "m4", PeerURL: peer("4"), Learner: true})
	})
	got := rows()
	want[2].State, want[2].Reason, want[2].Engine.Healthy = api.ServerDown, "its store member does not answer",
		false
	want = append([]row{{
		"", "", api.ServerJoining,
		"it is a member of the store and has not started: start `berth server` on its machine", false, false,
		api.EngineMember{ID: "m4", Peer: peer("4"), Learner: true},
	}}, want...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one down, one joining (-want +got):\n%s", diff)
	}
	one := read[api.ServerView](t, w.want(200, "GET", "/v1/servers/m4", nil))
	if one.Member != "m4" || one.State != api.ServerJoining {
		t.Errorf("by the member's id: %+v", one)
	}
	w.want(404, "GET", "/v1/servers/s9", nil)
}

func TestPromoteServer(t *testing.T) {
	members := three()
	members.members[2].Learner = true
	members.lags = true
	w := newFleetWorld(t, members)
	got := w.want(409, "POST", "/v1/servers/s3/promote", nil)
	if !strings.Contains(got.problem().Detail, "host3 has not caught up") {
		t.Errorf("a learner that lags: %s", got.body)
	}
	members.set(func(f *fakeMembers) { f.lags = false })
	for range 2 { // the second time it has its vote
		if v := read[api.ServerView](t, w.want(200, "POST", "/v1/servers/s3/promote", nil)); v.Engine.Learner {
			t.Errorf("after the promotion: %+v", v.Engine)
		}
	}
	if diff := cmp.Diff([]string{"promote m3"}, members.changes); diff != "" {
		t.Errorf("what the engine was asked (-want +got):\n%s", diff)
	}
	w.want(404, "POST", "/v1/servers/s9/promote", nil)
}

func TestRemoveServer(t *testing.T) {
	tests := []struct {
		name    string
		members func(*fakeMembers)
		path    string
		status  int
		says    string
		asked   []string
		records string // that are left
	}{
		{"one of three", nil, "s2", 204, "", []string{"remove m2"}, "s1 s3"},
		{"by its member", nil, "m2", 204, "", []string{"remove m2"}, "s1 s3"},
		{"the one that answers, of three", nil, "s1", 204, "", []string{"remove m1"}, "s2 s3"},
		{"one that is down", func(f *fakeMembers) {
			f.members[1].Healthy = false
		}, "s2", 204, "", []string{"remove m2"}, "s1 s3"},
		{
			"one that is up, while another is down", func(f *fakeMembers) { f.members[1].Healthy = false }, "s3", 409,
			"of which 2 must be up and 1 would be", nil, "s1 s2 s3",
		},
		{"the same with force", func(f *fakeMembers) {
			f.members[1].Healthy = false
		}, "s3?force", 409, "Bring another server up first", nil, "s1 s2 s3"},
		{"the last", func(f *fakeMembers) { f.members = f.members[:1] }, "s1", 409, "is the last one", nil, "s1 s2 s3"},
		{"the last with force", func(f *fakeMembers) {
			f.members = f.members[:1]
		}, "s1?force", 409, "is the last one", nil, "s1 s2 s3"},
		{"a record without a member", func(f *fakeMembers) { f.members = f.members[:2] }, "s3", 204, "", nil, "s1 s2"},
		{"a learner, while another is down", func(f *fakeMembers) {
			f.members[1].Healthy, f.members[2].Learner = false, true
		}, "s3", 204, "", []string{"remove m3"}, "s1 s2"},
		{"the engine refuses", func(f *fakeMembers) { f.err = nil }, "s9", 404, "no server s9", nil, "s1 s2 s3"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			members := three()
			if test.members != nil {
				test.members(members)
			}
			w := newFleetWorld(t, members)
			got := w.want(test.status, "DELETE", "/v1/servers/"+test.path, nil)
			if !strings.Contains(string(got.body), test.says) {
				t.Errorf("want %q: %s", test.says, got.body)
			}
			if diff := cmp.Diff(test.asked, members.changes); diff != "" {
				t.Errorf("what the engine was asked (-want +got):\n%s", diff)
			}
			var left []string
			for e := range w.tables.Snapshot().Servers() {
				left = append(left, e.Value.ID)
			}
			if got := strings.Join(left, " "); got != test.records {
				t.Errorf("records left: %s, want %s", got, test.records)
			}
		})
	}
}

// TestStoreElsewhere runs servers over an external store.
func TestStoreElsewhere(t *testing.T) {
	reach := map[string]control.Reach{"s2": {Reached: true}, "s3": {Problem: "no route"}}
	w := newWorld(t, func(c *Config) {
		c.Server.ID, c.Server.Reach = "s1", func() map[string]control.Reach { return reach }
	})
	for _, id := range []string{"s1", "s2", "s3", "s4"} {
		w.put(map[string]any{"server/" + id: cluster.Server{ID: id, Name: id}})
	}
	var got []string
	for _, v := range read[api.Page[api.ServerView]](t, w.want(200, "GET", "/v1/servers", nil)).Items {
		got = append(got, v.ID+" "+string(v.State))
	}
	if diff := cmp.Diff([]string{"s1 up", "s2 up", "s3 down", "s4 unknown"}, got); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	w.want(409, "POST", "/v1/servers/s2/promote", nil)
	w.want(409, "DELETE", "/v1/servers/s1", nil)
	w.want(409, "DELETE", "/v1/servers/s2", nil)
	w.want(204, "DELETE", "/v1/servers/s2?force", nil)
	w.want(204, "DELETE", "/v1/servers/s3", nil)
}

func TestStatus(t *testing.T) {
	members := three()
	w := newFleetWorld(t, members)
	status := func() api.Status {
		t.Helper()
		w.refresh()
		return read[api.Status](t, w.want(200, "GET", "/v1/status", nil))
	}
	v := status()
	if v.Server != "s1" || v.Leader == nil || v.Leader.Name != "host1" || v.Leader.Epoch != 3 ||
		v.Leader.Incarnation != 7 {
		t.Errorf("leader: %+v", v.Leader)
	}
	if diff := cmp.Diff(api.ServerCount{Up: 3, Total: 3, Quorum: 2}, v.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if len(v.Alarms) > 0 || v.Store == nil || !v.Store.Writable || v.MassSilence || v.Recovery != nil {
		t.Errorf("want no trouble, got %+v", v)
	}
	tests := []struct {
		name   string
		change func(*fakeMembers)
		says   string
	}{
		{"a low disk", func(f *fakeMembers) {
			f.health.Writes, f.health.Reason = false, "the disk has 10 MiB left"
		}, "takes no writes: the disk has 10 MiB left"},
		{"a disk that fills", func(f *fakeMembers) { f.health.DiskFree = 150 << 20 }, "has 150 MiB free"},
		{"a full database", func(f *fakeMembers) { f.health.Size = 7 << 30 }, "takes 7 GiB of its quota of 8 GiB"},
		{"an alarm", func(f *fakeMembers) {
			f.health.Alarms = []store.EngineAlarm{{Name: "NOSPACE", Member: "m2"}}
		}, "raised the alarm NOSPACE of member m2"},
		{"no quorum", func(f *fakeMembers) { f.health.Quorum = false }, "has no quorum"},
		{"a limited rate", func(f *fakeMembers) {
			f.health.Alarms = []store.EngineAlarm{{Name: store.AlarmLimited}}
		}, "limits the rate of requests and refused some"},
		{"a denied token", func(f *fakeMembers) {
			f.health.Quorum, f.health.Writes, f.health.Reason = false, false, "the store denies this server"
		}, "answers no consistent reads, and writes wait: the store denies this server"},
		{"a server down", func(f *fakeMembers) { f.members[1].Healthy = false }, "server host2 is down"},
		{"no answer", func(f *fakeMembers) { f.err = store.ErrUnavailable }, "could not be asked"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			good := three()
			members.set(func(f *fakeMembers) {
				f.members, f.health, f.err = good.members, good.health, nil
				test.change(f)
			})
			v := status()
			if text := strings.Join(v.Alarms, "\n"); len(v.Alarms) == 0 || !strings.Contains(text, test.says) {
				t.Errorf("alarms: want %q in %q", test.says, text)
			}
		})
	}
}

// TestMassSilence silences more and more of eleven nodes.
func TestMassSilence(t *testing.T) {
	w := newFleetWorld(t, three())
	now := time.Now().UTC()
	nodes := func(silent int, apart time.Duration) {
		records := map[string]any{}
		for i := range 11 {
			name := "n" + string(rune('a'+i))
			n := cluster.Node{Name: name, Domain: "default", State: cluster.NodeReady, Since: now}
			if i < silent {
				n.State, n.Since = cluster.NodeDown, now.Add(-time.Duration(i)*apart)
			}
			records["node/"+name] = n
		}
		w.put(records)
	}
	is := func(want bool) {
		t.Helper()
		v := read[api.Status](t, w.want(200, "GET", "/v1/status", nil))
		if v.MassSilence != want || want != (len(v.Alarms) > 0) {
			t.Errorf("mass silence %v, want %v: %v", v.MassSilence, want, v.Alarms)
		}
		if d := read[api.DomainView](t, w.want(200, "GET", "/v1/domains/default", nil)); d.Status.MassSilence != want {
			t.Errorf("the domain's view says %v", d.Status.MassSilence)
		}
	}
	nodes(3, 0)
	is(false)
	nodes(4, 0)
	is(true)
	if v := read[api.Status](t, w.want(200, "GET", "/v1/status", nil)); v.Nodes[cluster.NodeDown] != 4 ||
		v.Nodes[cluster.NodeReady] != 7 {
		t.Errorf("nodes: %v", v.Nodes)
	}
	got := read[api.DomainView](t, w.want(200, "POST", "/v1/domains/default/reschedule", map[string]any{"for": "10m"}))
	if left := time.Until(got.RescheduleUntil); left < 9*time.Minute || left > 11*time.Minute {
		t.Errorf("until %v", got.RescheduleUntil)
	}
	if v := read[api.Status](t, w.want(200, "GET", "/v1/status", nil)); !strings.Contains(strings.Join(v.Alarms, " "),
		"lets their tasks be replaced until") {
		t.Errorf("an override: %v", v.Alarms)
	}
	if got := read[api.DomainView](t,
		w.want(200, "POST", "/v1/domains/default/reschedule", map[string]any{"for": "0s"}),
	); !got.RescheduleUntil.IsZero() {
		t.Errorf("taken back: %+v", got)
	}
	nodes(4, 10*time.Minute)
	is(false)
	w.want(422, "POST", "/v1/domains/default/reschedule", map[string]any{"for": "25h"})
	written := w.want(200, "POST", "/v1/domains/default/reschedule", map[string]any{"for": "1h"})
	at := read[api.DomainView](t, written).Revision
	w.want(412, "POST", "/v1/domains/default/reschedule", map[string]any{"for": "2h"}, "If-Match", `"1"`)
	w.want(200, "POST", "/v1/domains/default/reschedule", map[string]any{"for": "0s"}, "If-Match", respond.ETag(at))
}

func TestSnapshot(t *testing.T) {
	w := newWorld(t)
	w.web()
	resp := w.open("/v1/snapshot")
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	if got := resp.Trailer.Get(api.SnapshotSum); got != hex.EncodeToString(sum[:]) {
		t.Errorf("trailer %q", got)
	}
	if resp.Header.Get(api.SnapshotRevision) == "" {
		t.Error("no revision")
	}
	other := memory.New(memory.Options{})
	defer other.Close()
	if err := other.Restore(bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(t.Context(), store.Prefix(store.DefaultPrefix).Service("default", "web")); err != nil {
		t.Errorf("what was restored: %v", err)
	}
}

// tornEngine breaks off in the middle of a snapshot.
type tornEngine struct {
	store.Engine
	before string
}

func (e tornEngine) Snapshot(_ context.Context, _ string, to io.Writer) error {
	if _, err := io.WriteString(to, e.before); err != nil {
		return err
	}
	return errors.New("the disk is gone")
}

func TestSnapshotCutShort(t *testing.T) {
	for _, before := range []string{"", strings.Repeat("data", 10_000)} {
		w := newWorld(t, func(c *Config) { c.Engine = tornEngine{c.Engine, before} })
		resp, err := w.send("/v1/snapshot")
		status := 0
		if err == nil {
			status = resp.StatusCode
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if before == "" && status != http.StatusInternalServerError || before != "" && err == nil {
			t.Errorf("after %d bytes: status %d, %v; want an error, not a snapshot that seems complete", len(before),
				status, err)
		}
	}
}

// open sends a GET and leaves the body to the test.
func (w *world) open(path string) *http.Response {
	w.t.Helper()
	resp, err := w.send(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

func (w *world) send(path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultClient.Do(r)
}

func TestRecovery(t *testing.T) {
	w := newFleetWorld(t, three())
	if v := read[api.RecoveryView](t, w.want(200, "GET", "/v1/recovery", nil)); v.Needed || v.Recovery != nil ||
		v.Incarnation != 7 {
		t.Errorf("without a recovery: %+v", v)
	}
	w.want(409, "POST", "/v1/recovery", map[string]any{"action": "adopt"})
	w.want(422, "POST", "/v1/recovery", map[string]any{"action": "hope"})
	ahead := uint64(time.Now().Add(time.Hour).UnixMilli()) // an agent saw a token of a clock that was ahead
	w.put(map[string]any{"recovery/default": cluster.Recovery{
		State: cluster.RecoveryNeeded, Cause: "node n1 showed a token above the store's",
		Shown: cluster.Token{Incarnation: ahead, Epoch: 9},
	}})
	v := read[api.RecoveryView](t, w.want(200, "GET", "/v1/recovery", nil))
	if !v.Needed {
		t.Errorf("needed: %+v", v)
	}
	if st := read[api.Status](t, w.want(200, "GET", "/v1/status", nil)); st.Recovery == nil ||
		!strings.Contains(st.Alarms[0], "n1 showed a token") {
		t.Errorf("the status: %+v %v", st.Recovery, st.Alarms)
	}
	if r := read[api.Readiness](t, w.want(200, "GET", "/readyz", nil)); !r.Ready ||
		!strings.Contains(r.Parts["recovery"], "waits for the operator") {
		t.Errorf("readiness: %+v", r)
	}
	w.want(412, "POST", "/v1/recovery", map[string]any{"action": "adopt"}, "If-Match", respond.ETag(v.Revision-1))
	done := read[api.RecoveryView](t,
		w.want(200, "POST", "/v1/recovery", map[string]any{"action": "adopt"}, "If-Match", respond.ETag(v.Revision)))
	if done.Needed || done.Recovery.State != cluster.RecoveryAdopt || done.Recovery.By == "" ||
		done.Recovery.Decided.IsZero() {
		t.Errorf("decided: %+v", done.Recovery)
	}
	l, _ := w.tables.Snapshot().Leader("default")
	if l.Value.Incarnation != ahead+1 || l.Value.Epoch != 4 || l.Value.Holder != "" || l.Modified != done.Revision {
		t.Errorf("the leader's record: %+v at %d, want incarnation %d of epoch 4, with the decision at %d", l.Value,
			l.Modified, ahead+1, done.Revision)
	}
	last, _ := w.tables.Snapshot().LastEvents()
	if e := last.Value.Events[0]; e.Type != "recovery.decided" || last.Value.Incarnation != ahead+1 || e.By == "" {
		t.Errorf("the event: %+v", last.Value)
	}
	again := read[api.RecoveryView](t, w.want(200, "POST", "/v1/recovery", map[string]any{"action": "adopt"}))
	if again.Revision != done.Revision || again.Incarnation != ahead+1 {
		t.Errorf("the same decision again changed something: %+v", again)
	}
	w.want(409, "POST", "/v1/recovery", map[string]any{"action": "stop"})
}

// TestRecoveryBetween changes the leader between a decision's draft and its commit. The decision is drafted again.
func TestRecoveryBetween(t *testing.T) {
	var hook commitHook
	w := newWorldOn(t, memory.New(memory.Options{Hooks: memory.Hooks{Before: hook.before}}))
	w.put(map[string]any{
		"leader/default":   cluster.Leader{Epoch: 3, Holder: "s1", Incarnation: 7},
		"recovery/default": cluster.Recovery{State: cluster.RecoveryNeeded},
	})
	hook.on("recovery/default", func() {
		w.put(map[string]any{"leader/default": cluster.Leader{Epoch: 4, Holder: "s2", Incarnation: 7}})
	})
	w.want(200, "POST", "/v1/recovery", map[string]any{"action": "stop"})
	if l, _ := w.tables.Snapshot().Leader("default"); l.Value.Epoch != 5 || l.Value.Holder != "" {
		t.Errorf("the leader's record: %+v, want epoch 5", l.Value)
	}
}

func TestConfigHidesSecrets(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Server.ID = "s1"
		c.Server.Settings = map[string]string{
			"data-dir": "/var/lib/berth", "join-token": "abc.def", "token-file": "/t",
			"some-secret": "x",
		}
	})
	got := read[api.Settings](t, w.want(200, "GET", "/v1/config", nil))
	want := api.Settings{Server: "s1", Values: map[string]string{
		"data-dir": "/var/lib/berth", "join-token": "(left out)", "token-file": "/t", "some-secret": "(left out)",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestProfiles(t *testing.T) {
	w := newWorld(t)
	if got := w.want(200, "GET", "/debug/pprof/goroutine?debug=2", nil); !strings.Contains(string(got.body),
		"goroutine ") {
		t.Errorf("%.200s", got.body)
	}
	for _, name := range []string{"heap?gc=1", "allocs", "goroutine", "profile?seconds=1"} {
		if got := w.want(200, "GET", "/debug/pprof/"+name, nil); !bytes.HasPrefix(got.body, []byte{0x1f, 0x8b}) {
			t.Errorf("%s: not a profile: %.50q", name, got.body)
		}
	}
	w.want(404, "GET", "/debug/pprof/none", nil)
	w.want(400, "GET", "/debug/pprof/heap?what", nil)
}

func TestGauges(t *testing.T) {
	w := newFleetWorld(t, three())
	w.put(map[string]any{
		"node/n1":     cluster.Node{Name: "n1", Domain: "default", State: cluster.NodeReady},
		"node/n2":     cluster.Node{Name: "n2", Domain: "ci", State: cluster.NodeReady},
		"domain/ci":   cluster.Domain{Name: "ci", Number: 1},
		"recovery/ci": cluster.Recovery{State: cluster.RecoveryNeeded},
	})
	got := string(w.want(200, "GET", "/metrics", nil).body)
	for _, want := range []string{
		`berth_domain_nodes{domain="default",state="ready"} 1`, `berth_domain_nodes{domain="default",state="down"} 0`,
		`berth_domain_nodes{domain="ci",state="ready"} 1`, `berth_domain_leader{domain="ci"} 0`,
		`berth_domain_recovery_needed{domain="ci"} 1`, `berth_domain_mass_silence{domain="ci"} 0`,
		`berth_domain_servers{state="up"} 3`,
		`berth_domain_leader{domain="default"} 1`, `berth_domain_recovery_needed{domain="default"} 0`,
		`berth_domain_mass_silence{domain="default"} 0`,
		`berth_store_writable 1`,
		`berth_store_quorum 1`, `berth_store_alarms 0`, `berth_store_synced 1`,
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
