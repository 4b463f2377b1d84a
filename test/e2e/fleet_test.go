package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// threeServers is a fleet with that many agents, and its hosts.
func threeServers(t *testing.T, agents int) (*harness.Fleet, []harness.Host) {
	t.Helper()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(5)
	f.Start(hosts[:3]...)
	for i := range agents {
		f.Agent(hosts[3+i%2])
	}
	return f, hosts
}

// writes creates clusters, one after the other, until it is stopped, and keeps the acknowledged ones.
type writes struct {
	mu     sync.Mutex
	acked  []string
	gap    time.Duration // the longest time without an acknowledgement
	end    context.CancelFunc
	ended  chan struct{}
	client *client.Client
}

func beginWrites(f *harness.Fleet, t *testing.T) *writes {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writes{end: cancel, ended: make(chan struct{}), client: f.Client()}
	go func() {
		defer close(w.ended)
		last := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("w%d", n)
			each, stop := testkit.WithLimit(ctx, 2*time.Second)
			_, err := w.client.PutCluster(each, api.Cluster{Name: name}, client.Condition{})
			stop()
			w.mu.Lock()
			if err == nil {
				w.acked = append(w.acked, name)
				w.gap = max(w.gap, time.Since(last))
				last = time.Now()
			}
			w.mu.Unlock()
			testkit.Pause(ctx, 20*time.Millisecond)
		}
	}()
	return w
}

// more waits until writes are acknowledged that began after now.
func (w *writes) more(f *harness.Fleet) {
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked)
	}
	before := count()
	f.Eventually(soon, func() error {
		if now := count(); now < before+3 {
			return fmt.Errorf("%d writes were acknowledged, and %d before", now, before)
		}
		return nil
	})
}

// check ends the writes and demands that every one that was acknowledged is there.
func (w *writes) check(t *testing.T) {
	t.Helper()
	w.end()
	<-w.ended
	all, _, err := client.All(t.Context(), client.ListOptions{}, w.client.Clusters)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, c := range all {
		there[c.Name] = true
	}
	for _, name := range w.acked {
		if !there[name] {
			t.Errorf("the cluster %s was acknowledged and is not there", name)
		}
	}
	t.Logf("%d acknowledged writes, the longest pause %v", len(w.acked), w.gap.Round(time.Millisecond))
}

func TestFleetSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	f, _ := threeServers(t, 2)
	f.Berth("server", "members").Want(t, 0, "s1", "s2", "s3", "leads")
	if !f.HasExternalStore() {
		f.Berth("server", "members").Want(t, 0, "voter")
	}
	f.Berth("status").Want(t, 0, "3 servers: 3 up", "2 nodes: 2 ready")
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 4))).Want(t, 0, "4/4")
	before := running(t, f.Site, "hello", 4)
	w := beginWrites(f, t)
	w.more(f)

	// The leader dies. Another server leads, writes continue, and no task is disturbed.
	first := f.Leader()
	first.Kill()
	began := time.Now()
	second := f.Leader()
	t.Logf("another server leads %v after the leader was killed", time.Since(began).Round(time.Millisecond))
	w.more(f)
	f.Eventually(soon, wantStatus(f, "Alarms:", "3 servers: 2 up"))
	samePids(t, before, running(t, f.Site, "hello", 4))
	for _, n := range []string{"n1", "n2"} {
		f.NodeIs(n, cluster.NodeReady)
	}
	f.Berth("scale", "--detach", "service/hello", "6").Want(t, 0)
	six := running(t, f.Site, "hello", 6)

	// Byte streams reach nodes through any server.
	for _, s := range f.Servers {
		if s != first {
			f.Eventually(soon, func() error { // the servers exchange the places of nodes once a second
				for _, task := range []string{"hello.1.0", "hello.1.5"} {
					if r := s.Berth("logs", task, "--tail", "1"); r.Code != 0 {
						return fmt.Errorf("%s", r.Stderr)
					}
				}
				return nil
			})
			s.Berth("logs", "hello.1.0", "--tail", "1").Want(t, 0, "v1 line")
			s.Berth("exec", "hello.1.5", "--", "sh", "-c", "exit 4").Want(t, 4)
		}
	}

	// The old leader comes back and follows.
	first.Start()
	f.Voters(3)
	if now := f.Leader(); now == first {
		t.Errorf("%s took the leadership back from %s", first.Host.Name, second.Host.Name)
	}
	samePids(t, six, running(t, f.Site, "hello", 6))
	w.check(t)
}

// wantStatus returns a function that requires words in the output of `berth status`.
func wantStatus(f *harness.Fleet, words ...string) func() error {
	return func() error {
		r := f.Berth("status")
		for _, w := range words {
			if !strings.Contains(r.Stdout, w) {
				return fmt.Errorf("want %q:\n%v", w, r)
			}
		}
		return nil
	}
}

func TestFleetRollingRestart(t *testing.T) {
	t.Parallel()
	f, _ := threeServers(t, 2)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 4))).Want(t, 0, "4/4")
	before := running(t, f.Site, "hello", 4)
	w := beginWrites(f, t)
	for _, s := range f.Servers {
		if code := s.Terminate(); code != 0 {
			t.Errorf("%s ended with exit code %d:\n%s", s.Host.Name, code, s.Output())
		}
		w.more(f)
		s.Start()
		f.Voters(3)
		for _, n := range []string{"n1", "n2"} {
			f.NodeIs(n, cluster.NodeReady)
		}
	}
	w.check(t)
	samePids(t, before, running(t, f.Site, "hello", 4))

	// All together, and the agents too.
	for _, s := range f.Servers {
		s.Kill()
	}
	for _, a := range f.Agents {
		a.Kill()
	}
	for _, s := range f.Servers {
		s.Begin()
	}
	for _, s := range f.Servers {
		s.Ready()
	}
	for _, a := range f.Agents {
		a.Begin()
	}
	for _, a := range f.Agents {
		f.NodeIs(a.Name, cluster.NodeReady)
	}
	samePids(t, before, running(t, f.Site, "hello", 4))
	f.Berth("scale", "--detach", "service/hello", "5").Want(t, 0)
	running(t, f.Site, "hello", 5)
}

func TestFleetRemovedServer(t *testing.T) {
	t.Parallel()
	f, hosts := threeServers(t, 1)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, f.Site, "hello", 2)

	gone := f.Servers[2]
	gone.Removed()
	f.Berth("server", "remove", "s9").Want(t, 2, `there is no server "s9"`)
	f.Berth("server", "remove", "s3").Want(t, 0, "s3 is removed")
	if code := gone.Exit(soon); code != 2 || !strings.Contains(gone.Output(), "removed") {
		t.Errorf("the removed server ends with exit code %d and says:\n%s", code, gone.Output())
	}
	f.Voters(2)
	again := f.Berth("server", "--data-dir", gone.Dir, "--listen", "unix://"+gone.Socket, "--listen", gone.URL(),
		"--listen-peers", gone.Host.Address+":7072")
	again.Want(t, 2, "removed")

	// It joins again from an empty directory, and becomes a voter.
	f.Join(hosts[2]).Start()
	f.Voters(3)
	samePids(t, before, running(t, f.Site, "hello", 2))
}

func TestFleetJoinCanBeRepeated(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(2)
	first := f.Init(hosts[0]).Start()
	// Making it again changes nothing; another address is refused.
	again := []string{"server", "init", "--data-dir", first.Dir, "--name", "s1", "--advertise"}
	key := readFile(t, filepath.Join(first.Dir, "pki", "ca.key"))
	f.Berth(append(again, hosts[0].Address)...).Want(t, 0, "was already a server")
	f.Berth(append(again, "10.9.9.9")...).Want(t, 2, "belongs to a server already")
	if readFile(t, filepath.Join(first.Dir, "pki", "ca.key")) != key {
		t.Error("the key of the authority was overwritten")
	}

	// A token is for one machine. The same machine may use it again.
	joined := f.Join(hosts[1])
	joined.Rejoin(joined.Token).Want(t, 0, "had joined already")
	// as after a crash before it was written
	if err := os.Remove(filepath.Join(joined.Dir, "server.json")); err != nil {
		t.Fatal(err)
	}
	f.Berth("server", "--data-dir", joined.Dir).Want(t, 2, "did not finish",
		"Run `berth server init` or `berth server join` again")
	joined.Rejoin(f.JoinToken("server")).Want(t, 0, "has joined")
	joined.Start()
	f.Voters(2)
	if text := readFile(t, filepath.Join(first.Dir, "audit.log")); strings.Contains(text, secretOf(t, joined.Token)) {
		t.Error("the audit log contains the secret of a join token")
	}
	if out := first.Output() + joined.Output(); strings.Contains(out, secretOf(t, joined.Token)) {
		t.Error("a log contains the secret of a join token")
	}
}

// secretOf returns the secret of the join token in a file.
func secretOf(t *testing.T, path string) string {
	t.Helper()
	return strings.Split(readFile(t, path), ".")[1]
}

// TestRemoteUsers talks to a fleet as people on other machines do: over https, with tokens of several roles.
func TestRemoteUsers(t *testing.T) {
	t.Parallel()
	f, _ := threeServers(t, 1)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	running(t, f.Site, "hello", 2)
	ca := filepath.Join(f.Servers[0].Dir, "pki", "ca.crt")
	remote := func(args ...string) harness.Result {
		t.Helper()
		return f.Berth(append([]string{"--addr", strings.Join(f.URLs(), ",")}, args...)...)
	}
	token := func(flags ...string) string {
		t.Helper()
		r := f.Berth(append([]string{"token", "create"}, flags...)...)
		r.Want(t, 0)
		if strings.Contains(r.Stderr, strings.TrimSpace(r.Stdout)) {
			t.Errorf("the secret is printed twice: %v", r)
		}
		return f.Write("token-of-a-person", r.Stdout)
	}
	operator := f.Write("operator", readFile(t, token("--role", "operator", "--name", "ada")))

	// Without the authority, or without a token, every request is refused.
	remote("status").Want(t, 2, "authority", "--ca-file")
	remote("status", "--ca-hash", strings.Repeat("0", 64)).Want(t, 2, "authority")
	remote("status", "--ca-file", ca).Want(t, 2, "--token-file")
	f.Berth("--addr", strings.Replace(f.Servers[0].URL(), "https", "http", 1), "status").Want(t, 2, "https")

	as := []string{"--ca-file", ca, "--token-file", operator}
	remote(append(as, "status")...).Want(t, 0, "hello", "2/2", "3 servers: 3 up")
	remote(append(as, "node", "top")...).Want(t, 0, "n1", "CPU USED")
	remote(append(as, "logs", "hello.1.0", "--tail", "1")...).Want(t, 0, "v1 line")
	remote(append(as, "exec", "hello.1.0", "--", "sh", "-c", "exit 5")...).Want(t, 5)
	remote(append(as, "node", "drain", "n1", "--now", "--wait")...).Want(t, 0, "n1 is empty")
	remote(append(as, "node", "uncordon", "n1")...).Want(t, 0, "takes tasks again")
	running(t, f.Site, "hello", 2)

	// A server that is down is passed over.
	f.Servers[0].Kill()
	remote(append(as, "status")...).Want(t, 0, "hello")

	// Roles bound what may be done; a token that is revoked does nothing any more.
	viewer := token("--role", "viewer")
	as = []string{"--ca-file", ca, "--token-file", viewer}
	remote(append(as, "ps")...).Want(t, 0, "hello.1.0")
	remote(append(as, "scale", "service/hello", "9")...).Want(t, 2, "viewer")
	remote(append(as, "token", "create", "--role", "admin")...).Want(t, 2, "viewer")
	f.Berth("token", "ls").Want(t, 0, "ada", "operator", "viewer")
	id, _, _ := strings.Cut(readFile(t, viewer), ".")
	f.Berth("token", "revoke", id).Want(t, 0, "is revoked")
	f.Eventually(soon, func() error {
		if r := remote(append(as, "ps")...); r.Code != 2 {
			return fmt.Errorf("a revoked token: %v", r)
		}
		return nil
	})
	f.Servers[0].Start()
	f.Voters(3)

	// The bundle contains no secret of this fleet.
	bundle := filepath.Join(f.Dir, "bundle.tar.gz")
	f.Berth("operator", "debug", "-o", bundle, "--cpu", "0s").Want(t, 0, bundle)
	if info, err := os.Stat(bundle); err != nil || info.Size() < 10_000 || info.Mode().Perm() != 0o600 {
		t.Errorf("bundle: %v, %v", info, err)
	}
}

// TestServerGrowsIntoFleet begins with a server for only its own machine, and makes it the first of three without
// disturbing its tasks.
func TestServerGrowsIntoFleet(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(3)
	dir := filepath.Join(f.Dir, "s1")
	alone := f.Site.Start(append([]string{"server", "--data-dir", dir, "--listen", "unix://" + f.Site.Socket},
		f.ServerDefaults()...)...)
	f.Eventually(soon, func() error { return ready(alone) })
	f.Site.AgentDir = filepath.Join(f.Dir, "local")
	local := append([]string{"agent", "--data-dir", f.Site.AgentDir, "--name", "local", "--executor", "process"},
		append(f.AgentDefaults(), "--server")...)
	agent := f.Site.Start(append(local, "unix://"+f.Site.Socket)...)
	f.NodeIs("local", cluster.NodeReady)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, f.Site, "hello", 2)
	agent.Terminate()
	alone.Terminate()

	first := f.Init(hosts[0]).Start()
	agent = newSession(t, f, "local", append(local, "unix://"+first.Socket))
	samePids(t, before, running(t, f.Site, "hello", 2))
	f.Join(hosts[1]).Start()
	f.Join(hosts[2]).Start()
	f.Voters(3)
	samePids(t, before, running(t, f.Site, "hello", 2))

	// The agent of the first machine goes over to https with a token, and so to any server.
	agent.Terminate()
	agent = newSession(t, f, "local",
		append(local, first.URL(), "--join-token-file", f.JoinToken("node", "--for", "local")))
	first.Kill()
	f.Leader()
	f.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
	running(t, f.Site, "hello", 3)
	if !agent.Alive() {
		t.Errorf("the agent has ended:\n%s", agent.Output())
	}
	f.Berth("delete", "service/hello").Want(t, 0) // while its agent runs, which the fleet has not registered
}

// newSession starts an agent and waits until its node has a new session and is ready.
func newSession(t *testing.T, f *harness.Fleet, node string, args []string) *harness.Daemon {
	t.Helper()
	before := sessionOf(t, f, node)
	agent := f.Site.Start(args...)
	f.Eventually(soon, func() error {
		// the one before may have begun another session at its end
		if !strings.Contains(agent.Output(), "msg=registered") {
			return fmt.Errorf("it has not registered:\n%s", agent.Output())
		}
		n, err := f.Client().Node(t.Context(), node)
		if err == nil && (n.Session <= before || n.State != cluster.NodeReady) {
			err = fmt.Errorf("session %d, and %d before; %s", n.Session, before, n.State)
		}
		return err
	})
	return agent
}

func ready(d *harness.Daemon) error {
	if !strings.Contains(d.Output(), "berth: ready at ") {
		return fmt.Errorf("it does not serve:\n%s", d.Output())
	}
	return nil
}
