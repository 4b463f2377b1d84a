package e2e_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/test/harness"
)

// TestSnapshotRoundTrip saves the store, writes more, and restores the snapshot on one server. It decides on the tasks
// that are not in the snapshot, and the other servers join again.
func TestSnapshotRoundTrip(t *testing.T) {
	t.Parallel()
	f, hosts := threeServers(t, 2)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 3))).Want(t, 0, "3/3")
	before := running(t, f.Site, "hello", 3)
	snapshot := filepath.Join(f.Dir, "saved")
	f.Berth("operator", "snapshot", "save", snapshot).Want(t, 0, "saved to", "service 1", "incarnation")
	f.Berth("operator", "snapshot", "save", snapshot).Want(t, 2, "already exists", "--force")
	f.Berth("operator", "snapshot", "inspect", snapshot).Want(t, 0, "sha256", "service 1")
	if info, err := os.Stat(snapshot); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot's mode: %v, %v", info.Mode(), err)
	}

	// The restore loses the later writes: two more tasks, and a cluster.
	f.Berth("scale", "--detach", "service/hello", "5").Want(t, 0)
	five := running(t, f.Site, "hello", 5)
	if _, err := f.Client().PutCluster(t.Context(), api.Cluster{Name: "later"}, client.Condition{}); err != nil {
		t.Fatal(err)
	}

	// A restore is refused for a running server, and for a file that is not a snapshot.
	first := f.Servers[0]
	restore := []string{"operator", "snapshot", "restore", snapshot, "--data-dir", first.Dir}
	f.Berth(restore...).Want(t, 2, "in use by another process", "Stop the server first")
	for _, s := range f.Servers {
		s.Terminate()
	}
	whole := readFile(t, snapshot)
	torn := f.Write("torn", whole[:len(whole)/2])
	f.Berth("operator", "snapshot", "restore", torn, "--data-dir", first.Dir).Want(t, 2, torn, "it is cut short")
	f.Berth("operator", "snapshot", "inspect", torn).Want(t, 2, torn)

	// The restore on one server. The others join again.
	f.Berth(restore...).Want(t, 0, "is restored", "berth operator recover --adopt|--stop", "join")
	f.Servers[1].Removed()
	f.Servers[2].Removed()
	first.Start()
	f.Eventually(soon, wantStatus(f, "Alarms:", "berth operator recover"))
	old := f.Servers[1].Begin() // with the store of before
	f.Eventually(soon, func() error {
		if !strings.Contains(old.Output(), "this server's store was replaced") {
			return fmt.Errorf("an old server does not say that it must join again:\n%s", old.Output())
		}
		return nil
	})
	old.Kill()
	f.Berth("operator", "recover").Want(t, 2, "want exactly one of --adopt and --stop", "saved")
	samePids(t, five, five) // nothing was stopped meanwhile
	f.Berth("operator", "recover", "--adopt").Want(t, 0, "kept if their owner still wants them")
	f.Berth("operator", "recover", "--adopt").Want(t, 0)
	f.Join(hosts[1]).Start()
	f.Join(hosts[2]).Start()
	f.Voters(3)
	samePids(t, before, running(t, f.Site, "hello", 3))
	if _, err := f.Client().Cluster(t.Context(), "later"); client.StatusOf(err) != 404 {
		t.Errorf("what was written after the snapshot: %v, want 404", err)
	}
	f.Berth("scale", "--detach", "service/hello", "4").Want(t, 0)
	running(t, f.Site, "hello", 4)
}

// TestRecoverStop restores a snapshot and stops the tasks that are not in it, although the service wants as many tasks.
// New tasks replace them, and the tasks of the snapshot continue.
func TestRecoverStop(t *testing.T) {
	t.Parallel()
	f, _ := threeServers(t, 2)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 3))).Want(t, 0, "3/3")
	before := running(t, f.Site, "hello", 3)
	snapshot := filepath.Join(f.Dir, "saved")
	f.Berth("operator", "snapshot", "save", snapshot).Want(t, 0, "saved to")
	f.Berth("scale", "--detach", "service/hello", "5").Want(t, 0)
	five := running(t, f.Site, "hello", 5)
	known := map[string]bool{}
	for _, task := range before {
		known[task.UUID] = true
	}
	for _, s := range f.Servers {
		s.Terminate()
	}
	first := f.Servers[0]
	f.Berth("operator", "snapshot", "restore", snapshot, "--data-dir", first.Dir).Want(t, 0, "is restored")
	first.Start()
	f.Eventually(soon, wantStatus(f, "Alarms:", "berth operator recover"))
	f.Berth("scale", "--detach", "service/hello", "5").Want(t, 0)
	// both nodes have reported their tasks, and nothing is stopped before the decision
	samePids(t, five, running(t, f.Site, "hello", 5))
	f.Berth("operator", "recover", "--stop").Want(t, 0)
	f.Eventually(soon, func() error {
		for _, task := range five {
			for _, c := range task.Containers {
				if !known[task.UUID] && harness.StartOf(c.Pid) == c.PidStart {
					return fmt.Errorf("%s, which the snapshot does not know, still runs as pid %d", task.ID, c.Pid)
				}
			}
		}
		return nil
	})
	now := running(t, f.Site, "hello", 5)
	samePids(t, before, now)
	for _, task := range now {
		for _, old := range five {
			if task.UUID == old.UUID && !known[task.UUID] {
				t.Errorf("%s continues, although the snapshot does not know it", task.ID)
			}
		}
	}
}

// TestLostQuorum continues with one of three servers after the loss of the two others.
func TestLostQuorum(t *testing.T) {
	t.Parallel()
	f, hosts := threeServers(t, 1)
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, f.Site, "hello", 2)
	last := f.Servers[1]
	f.Servers[0].Kill()
	f.Servers[2].Kill()
	f.Eventually(soon, func() error {
		if r := last.Berth("scale", "-d", "service/hello", "3"); r.Code != 2 || !strings.Contains(r.Stderr, "quorum") {
			return fmt.Errorf("a write without a quorum:\n%v", r)
		}
		return nil
	})
	last.Berth("status").Want(t, 0, "hello") // reads continue
	f.Berth("server", "recover-quorum", "--data-dir", last.Dir, "--yes").Want(t, 2, "in use by another process")
	last.Terminate()
	f.Berth("server", "recover-quorum", "--data-dir", last.Dir).Want(t, 2, "had not received are lost", "--yes")
	f.Berth("server", "recover-quorum", "--data-dir", last.Dir, "--yes").Want(t, 0, "berth operator recover")
	f.Servers[0].Removed()
	f.Servers[2].Removed()
	last.Start()
	f.Berth("operator", "recover", "--adopt").Want(t, 0)
	f.Join(hosts[0]).Start()
	f.Join(hosts[2]).Start()
	f.Voters(3)
	samePids(t, before, running(t, f.Site, "hello", 2))
	f.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
	running(t, f.Site, "hello", 3)
}

// TestCertificatesRotate gives the certificates a lifetime of seconds. All of them are renewed more than once, without
// a disturbed task or connection.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	f.Flags = []string{"--certificate-life", "12s"}
	hosts := harness.Loopback(4)
	f.Start(hosts[:3]...)
	agent := f.Agent(hosts[3])
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, f.Site, "hello", 2)
	session := sessionOf(t, f, agent.Name)

	node := filepath.Join(agent.Dir, "agent", "pki", "self.crt")
	files := []string{
		node, filepath.Join(f.Servers[1].Dir, "pki", "self.crt"),
		filepath.Join(f.Servers[2].Dir, "pki", "self.crt"),
	}
	for range 2 {
		was := make([]*x509.Certificate, len(files)) // they end at about the same time
		for i, file := range files {
			was[i] = certificate(t, file)
		}
		for i, file := range files {
			old := was[i]
			f.Eventually(time.Minute, func() error {
				if now := certificate(t, file); now.SerialNumber.Cmp(old.SerialNumber) == 0 {
					return fmt.Errorf("%s is still that which ends at %v", file, now.NotAfter)
				}
				return nil
			})
		}
	}
	f.Voters(3)
	samePids(t, before, running(t, f.Site, "hello", 2))
	if now := sessionOf(t, f, agent.Name); now != session {
		t.Errorf("the node's session is %d, and was %d: a new certificate ended it", now, session)
	}
	f.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
	running(t, f.Site, "hello", 3)

	// An agent with an expired certificate keeps its tasks, and names its remedy. A token reconnects it.
	agent.Kill()
	f.Eventually(time.Minute, func() error {
		if left := time.Until(certificate(t, node).NotAfter); left > 0 {
			return fmt.Errorf("the certificate lasts for %v more", left)
		}
		return nil
	})
	if err := os.Remove(agent.Token); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"agent", "--data-dir", agent.Dir, "--name", agent.Name, "--executor", "process", "--server",
		f.Servers[0].URL(),
	}
	stranded := f.Site.Start(append(args, f.AgentDefaults()...)...)
	f.Eventually(soon, func() error {
		if out := stranded.Output(); !strings.Contains(out, "has expired") ||
			!strings.Contains(out, "--join-token-file") {
			return fmt.Errorf("the agent says:\n%s", out)
		}
		return nil
	})
	stranded.Stop()
	f.Flags = nil
	agent.Token = f.JoinToken("node", "--for", agent.Name)
	agent.Begin()
	f.NodeIs(agent.Name, "ready")
	running(t, f.Site, "hello", 3)
}

// certificate reads the certificate in a file.
func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(readFile(t, path)))
	if block == nil {
		t.Fatalf("%s contains no certificate", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sessionOf returns the number of a node's session.
func sessionOf(t *testing.T, f *harness.Fleet, node string) uint64 {
	t.Helper()
	n, err := f.Client().Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return n.Session
}

// TestFleetFaults gives each new command invalid arguments. All faults are reported together, and nothing is created.
func TestFleetFaults(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	dir := filepath.Join(s.Dir, "new")
	file := s.Write("file", "x\n")
	for _, tc := range []struct {
		name  string
		args  []string
		words []string
	}{
		{"init without an address", []string{"server", "init", "--data-dir", dir}, []string{"--advertise is missing"}},
		{
			"init with wrong ones",
			[]string{
				"server", "init", "--data-dir", dir, "--advertise", "https://x/", "--name", "A_B",
				"--advertise-peers", "0.0.0.0",
			},
			[]string{"3 faults", "want HOST or HOST:PORT", `--name "A_B"`, "not the address of all interfaces"},
		},
		{
			"join without anything",
			[]string{"server", "join", "--data-dir", dir},
			[]string{"3 faults", "--advertise is missing", "--server is missing", "--token-file is missing"},
		},
		{
			"join with wrong ones",
			[]string{
				"server", "join", "--data-dir", dir, "--advertise", "10.0.0.1:0", "--server", "http://10.0.0.1",
				"--token-file", dir + "/no",
			},
			[]string{"3 faults", "port between 1 and 65535", "want https://HOST", "no such file"},
		},
		{"join with no token", []string{
			"server", "join", "--data-dir", dir, "--advertise", "10.0.0.2", "--server",
			"https://127.0.0.1:1", "--token-file", file,
		}, []string{"not a join token"}},
		{
			"server flags",
			[]string{
				"server", "--data-dir", dir, "--store", "redis://x", "--snapshot-every", "5ms", "--snapshot-keep",
				"0", "--trace-endpoint", "here", "--listen-peers", "x", "--log-level", "loud",
			},
			[]string{
				"6 faults", "want etcd://host:port", "--snapshot-every", "--snapshot-keep", "--trace-endpoint",
				"--listen-peers", "log-level",
			},
		},
		{
			"store files without a store",
			[]string{"server", "--data-dir", dir, "--store-key", file},
			[]string{"external store"},
		},
		{
			"store files that are not there",
			[]string{"server", "--data-dir", dir, "--store", "etcd://127.0.0.1", "--store-cert", "/nowhere"},
			[]string{"2 faults", "must be given together", "/nowhere: no such file"},
		},
		{
			"https without a certificate",
			[]string{"server", "--data-dir", dir, "--listen", "https://127.0.0.1:0"},
			[]string{"this server has no certificate", "berth server init"},
		},
		{
			"agent flags",
			[]string{
				"agent", "--data-dir", dir, "--server", "https://x y", "--name", "A", "--address", "here",
				"--label", "x", "--executor", "none",
			},
			[]string{"5 faults", "--server", "--name", "--address", "--label", "--executor"},
		},
		{
			"agent without a certificate",
			[]string{"agent", "--data-dir", dir, "--server", "https://127.0.0.1:1"},
			[]string{"requires this node's certificate", "--join-token-file"},
		},
		{
			"token flags",
			[]string{"token", "create", "--role", "king", "--uses", "3", "--for", "n1", "--ttl", "-1h"},
			[]string{"4 faults", `--role "king"`, "--uses", "--for", "--ttl"},
		},
		{"token role", []string{"token", "create", "--role", "node"}, []string{"add --join"}},
		{"drain of nothing", []string{"node", "drain"}, []string{"needs the name of a node"}},
		{
			"restore both",
			[]string{"operator", "snapshot", "restore", file, "--data-dir", dir, "--adopt", "--stop"},
			[]string{"exclude each other"},
		},
		{"restore nothing", []string{"operator", "snapshot", "restore", file, "--data-dir", dir}, []string{file}},
		{"inspect nothing", []string{"operator", "snapshot", "inspect", "/nowhere"}, []string{"/nowhere"}},
		{
			"quorum of nothing",
			[]string{"server", "recover-quorum", "--data-dir", dir, "--yes"},
			[]string{"contains no store"},
		},
		{"silence without a time", []string{"operator", "silence", "override"}, []string{"--for"}},
	} {
		t.Run(tc.name, func(t *testing.T) { s.Berth(tc.args...).Want(t, 2, tc.words...) })
	}
	if _, err := os.Stat(filepath.Join(dir, "pki", "ca.key")); err == nil {
		t.Error("an authority was made in spite of the faults")
	}
}

// TestBrokenServerFiles starts a server with damaged or missing files.
func TestBrokenServerFiles(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	s := f.Init(harness.Loopback(1)[0])
	start := []string{
		"server", "--data-dir", s.Dir, "--listen", "unix://" + s.Socket, "--listen", s.URL(),
		"--listen-peers", s.Host.Address + ":7072",
	}
	for _, tc := range []struct {
		name, file string
		content    string // empty removes the file
		mode       os.FileMode
		words      []string
	}{
		{"settings cut off", "server.json", `{"name": "s1", "ap`, 0o600, []string{"server.json"}},
		{"settings of nothing", "server.json", `{}`, 0o600, []string{"server.json", "no name"}},
		{"no settings", "server.json", "", 0, []string{"server.json", "did not finish"}},
		{"no key of the authority", "pki/ca.key", "", 0, []string{"ca.key"}},
		{"a key that others read", "pki/self.key", "same", 0o644, []string{"self.key", "chmod 600"}},
		{"no certificate", "pki/self.crt", "", 0, []string{"self.crt"}},
		{"a certificate of nothing", "pki/self.crt", "x", 0o600, []string{"self.crt"}},
		{
			"another server's id", "server-id", "0b9dd1e0-0000-4000-8000-000000000001\n", 0o600,
			[]string{"mixes two servers"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(s.Dir, tc.file)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			mode, content := os.FileMode(0o600), tc.content
			switch content {
			case "":
				err = os.Remove(path)
			case "same":
				err = os.Chmod(path, tc.mode)
			default:
				err = os.WriteFile(path, []byte(content), tc.mode)
			}
			if err != nil {
				t.Fatal(err)
			}
			r := f.Berth(start...)
			if err := os.WriteFile(path, good, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			r.Want(t, 2, tc.words...)
			if strings.Count(r.Stderr, "\n") > 4 {
				t.Errorf("want a short message:\n%v", r)
			}
		})
	}
	s.Start()
}
