package handover

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver/respond"
)

// fakeServer is the node's own server. It answers releases with a status and an answer, and counts adoptions.
type fakeServer struct {
	status   int
	released bool
	adopted  int
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any = api.NodeReleaseReply{Released: f.released}
	if strings.HasSuffix(r.URL.Path, "/adopt") {
		f.adopted++
		answer = api.NodeAdoptReply{}
	}
	if f.status != 0 {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(f.status)
		answer = api.Problem{Status: f.status, Title: "Conflict", Detail: "the objects have changed"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// opened opens a mover over a data directory with a journal.
func opened(t *testing.T, j *Journal) (*Mover, *fakeServer) {
	t.Helper()
	dir := t.TempDir()
	if j != nil {
		if err := j.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	return reopened(t, dir)
}

func reopened(t *testing.T, dir string) (*Mover, *fakeServer) {
	t.Helper()
	f := &fakeServer{}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	own, err := client.New(client.Config{Addr: s.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	m, err := Open(Config{Dir: dir, Node: "n1", Own: own})
	if err != nil {
		t.Fatal(err)
	}
	return m, f
}

// hasMoved reports whether the process has to begin for another owner.
func hasMoved(moved <-chan struct{}) bool {
	select {
	case <-moved:
		return true
	default:
		return false
	}
}

// Each step of a move is durable: a process that starts after it is in the same phase. Only the steps that change the
// owner, or start a server, make the process begin anew.
func TestPhasesOfAMove(t *testing.T) {
	t.Parallel()
	servers, objects := []string{"https://s1:7071"}, &api.NodeObjects{Node: "n1"}
	prepared := Journal{Number: 1, Phase: api.HandoverPrepared, Servers: servers}
	away := Journal{Number: 1, Phase: api.HandoverServers, Servers: servers}
	returning := Journal{Number: 1, Phase: api.HandoverReturning, Servers: servers, Objects: objects}
	complete := func(m *Mover) error {
		return m.Complete(t.Context(), api.HostCompleteRequest{Revisions: map[string]uint64{"Service/c/s": 4}})
	}
	for _, test := range []struct {
		name   string
		from   *Journal
		server fakeServer
		do     func(m *Mover) error
		status int // of the error; 0 for none
		phase  api.HandoverPhase
		number uint64
		moved  bool
	}{
		{"completed", &prepared, fakeServer{released: true}, complete, 0, api.HandoverServers, 2, true},
		{"refused", &prepared, fakeServer{status: 409}, complete, 409, api.HandoverPrepared, 1, false},
		{"completed again", &away, fakeServer{}, complete, 0, api.HandoverServers, 1, false},
		{"not prepared", nil, fakeServer{}, complete, 409, api.HandoverOwn, 0, false},
		{
			"cancelled", &prepared,
			fakeServer{},
			func(m *Mover) error { return m.Cancel(t.Context()) }, 0,
			api.HandoverOwn, 1, false,
		},
		{"the way back", &away, fakeServer{}, func(m *Mover) error {
			return m.Prepare(t.Context(), api.HostPrepareRequest{Objects: objects})
		}, 0, api.HandoverReturning, 1, true},
		{"the way back, again", &returning, fakeServer{}, func(m *Mover) error {
			return m.Prepare(t.Context(), api.HostPrepareRequest{Objects: objects})
		}, 0, api.HandoverReturning, 1, false},
		{"objects of another node", &away, fakeServer{}, func(m *Mover) error {
			return m.Prepare(t.Context(), api.HostPrepareRequest{Objects: &api.NodeObjects{Node: "n2"}})
		}, 400, api.HandoverServers, 1, false},
		{"not adopted", &returning, fakeServer{}, complete, 409, api.HandoverReturning, 1, false},
		{"back", &returning, fakeServer{}, func(m *Mover) error {
			if err := m.adoptOwn(t.Context(), m.now()); err != nil {
				return err
			}
			return complete(m)
		}, 0, api.HandoverOwn, 2, true},
		{
			"the way back cancelled", &returning,
			fakeServer{},
			func(m *Mover) error { return m.Cancel(t.Context()) }, 0,
			api.HandoverServers, 1, true,
		},
		{"servers without https", nil, fakeServer{}, func(m *Mover) error {
			return m.Prepare(t.Context(), api.HostPrepareRequest{Servers: []string{"http://s1"}})
		}, 400, api.HandoverOwn, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, f := opened(t, test.from)
			*f = test.server
			_, moved, err := m.Begin()
			if err != nil {
				t.Fatal(err)
			}
			err = test.do(m)
			status := 0
			if err != nil {
				status = respond.ProblemOf(err).Status
			}
			if status != test.status {
				t.Errorf("the step ends with %v, want the status %d", err, test.status)
			}
			again, _ := reopened(t, m.config.Dir)
			for _, got := range []api.HostHandover{m.State(), again.State()} {
				if got.Phase != test.phase || got.Number != test.number {
					t.Errorf("the phase is %s, number %d; want %s, %d", got.Phase, got.Number, test.phase, test.number)
				}
			}
			if got := hasMoved(moved); got != test.moved {
				t.Errorf("the process begins anew: %v, want %v", got, test.moved)
			}
		})
	}
}

// The store that released the node is kept under another name, so that no later server begins with it.
func TestReleasedStoreIsKept(t *testing.T) {
	t.Parallel()
	m, _ := opened(t, &Journal{Number: 1, Phase: api.HandoverServers, Servers: []string{"https://s1:7071"}})
	for range 2 {
		if err := os.Mkdir(filepath.Join(m.config.Dir, serverDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	found, err := filepath.Glob(filepath.Join(m.config.Dir, serverDir+"*"))
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	if diff := cmp.Diff([]string{"server.released-1", "server.released-2"}, found); err != nil || diff != "" {
		t.Errorf("folders (-want +got):\n%s%v", diff, err)
	}
}

// A journal that cannot be read stops the process: it must not guess who drives the node.
func TestUnreadableJournal(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"phase": "elsewhere"}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: dir, Node: "n1"}); err == nil {
			t.Errorf("the journal %q was accepted", text)
		}
	}
}
