package ports

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/testkit"
)

// TestFree uses ports of this machine. The sentence names the process of the test.
func TestFree(t *testing.T) {
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	self := fmt.Sprintf("pid %d (%s)", os.Getpid(), strings.TrimSpace(string(own)))
	port := freePort(t)
	at := func(host string) string { return fmt.Sprintf("%s:%d", host, port) }
	for _, test := range []struct {
		name   string
		listen func() (interface{ Close() error }, error)
		want   string // where the process listens; empty if the port is free
	}{
		{"TCP on loopback", listenTCP("tcp4", at("127.0.0.1")), at("127.0.0.1") + " over TCP"},
		{"TCP on all addresses", listenTCP("tcp", at("")), at("[::]") + " over TCP"},
		{"TCP on IPv6", listenTCP("tcp6", at("[::1]")), at("[::1]") + " over TCP"},
		{"UDP on loopback", listenUDP("udp4", at("127.0.0.1")), at("127.0.0.1") + " over UDP"},
		{"UDP on all addresses", listenUDP("udp", at("")), at("[::]") + " over UDP"},
		{"UDP on IPv6", listenUDP("udp6", at("[::1]")), at("[::1]") + " over UDP"},
		{"shared UDP", listenShared(at("127.0.0.1")), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := Free(t.Context(), port, nil); err != nil {
				t.Fatalf("before: %v", err)
			}
			l, err := test.listen()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			got, want := "", ""
			// the search has a time limit, which is short for a busy machine
			testkit.Eventually(t, time.Minute, func() error {
				err := Free(t.Context(), port, nil)
				got = ""
				if err != nil {
					got = err.Error()
				}
				if strings.Contains(got, "did not find in time") {
					return err
				}
				return nil
			})
			if test.want != "" {
				want = fmt.Sprintf("port %d is used by %s, which listens at %s", port, self, test.want)
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestConnectionHoldsPort: a program may use the port for a connection to another one.
func TestConnectionHoldsPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the process ends anyway
	port := freePort(t)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
	c, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the process ends anyway
	got := Free(t.Context(), port, nil)
	if want := fmt.Sprintf("which sends from 127.0.0.1:%d over TCP", port); got == nil ||
		!strings.Contains(got.Error(), want) {
		t.Errorf("got %v, want %q in it", got, want)
	}
}

// TestPortWithoutPermission: a port that the agent may not use is no port in use.
func TestPortWithoutPermission(t *testing.T) {
	err := &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EACCES)}
	got := refusal(t.Context(), 80, tcp, nil, err).Error()
	if want := "port 80 cannot be used over TCP: listen tcp: bind: permission denied"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return at.Port
}

func listenTCP(network, address string) func() (interface{ Close() error }, error) {
	return func() (interface{ Close() error }, error) { return net.Listen(network, address) }
}

func listenUDP(network, address string) func() (interface{ Close() error }, error) {
	return func() (interface{ Close() error }, error) { return net.ListenPacket(network, address) }
}

func listenShared(address string) func() (interface{ Close() error }, error) {
	return func() (interface{ Close() error }, error) {
		c := net.ListenConfig{Control: shareAddress}
		return c.ListenPacket(context.Background(), "udp", address)
	}
}

// process is a process of a drawn machine.
type process struct {
	pid     int
	parent  int // 0 is the first process
	comm    string
	began   int
	sockets []int
}

// draw writes the files of a machine.
func draw(t *testing.T, tables map[string]string, processes ...process) machine {
	t.Helper()
	m := machine{proc: t.TempDir()}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range tables {
		write(filepath.Join(m.proc, "net", name), "  sl  local_address rem_address   st ...\n"+text)
	}
	write(filepath.Join(m.proc, "meminfo"), "MemTotal: 1 kB\n")
	for _, p := range processes {
		write(m.path(p.pid, "comm"), p.comm+"\n")
		zeros := strings.Repeat("0 ", 17)
		write(m.path(p.pid, "stat"), fmt.Sprintf("%d (a) b) S %d %s %d 0 0\n", p.pid, max(1, p.parent), zeros, p.began))
		if err := os.MkdirAll(m.path(p.pid, "fd"), 0o700); err != nil {
			t.Fatal(err)
		}
		for i, inode := range p.sockets {
			link := m.path(p.pid, fmt.Sprintf("fd/%d", i))
			if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

// line is a line of a table: its local address, its state, its user and its inode.
func line(at, state string, user, inode int) string {
	return fmt.Sprintf("  0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0\n", at, state,
		user, inode)
}

func TestDescribe(t *testing.T) {
	nginx := process{pid: 812, comm: "nginx", began: 40, sockets: []int{7}}
	for _, test := range []struct {
		name      string
		tables    map[string]string
		processes []process
		protocol  protocol
		want      string
	}{
		{
			"a server",
			map[string]string{"tcp": line("00000000:1F90", "0A", 0, 7)},
			[]process{nginx},
			tcp,
			"port 8080 is used by pid 812 (nginx), which listens at 0.0.0.0:8080 over TCP",
		},
		{
			"a server and its workers",
			map[string]string{"tcp6": line(strings.Repeat("0", 32)+":1F90", "0A", 0, 7)},
			[]process{{pid: 100, comm: "worker", began: 50, sockets: []int{3, 7}}, nginx},
			tcp,
			"port 8080 is used by pid 812 (nginx), which listens at [::]:8080 over TCP",
		},
		{
			"an address of IPv4 in a socket of IPv6",
			map[string]string{"tcp6": line("0000000000000000FFFF00000100007F:1F90", "0A", 0, 7)},
			[]process{nginx},
			tcp,
			"port 8080 is used by pid 812 (nginx), which listens at 127.0.0.1:8080 over TCP",
		},
		{
			"the listener among connections",
			map[string]string{
				"tcp": line("0100007F:1F90", "01", 0, 9) + line("0100007F:1F90", "06", 0, 0) +
					line("0100007F:1F90", "0A", 0, 7) + line("0100007F:0050", "0A", 0, 8),
			},
			[]process{{pid: 5, comm: "client", sockets: []int{9, 8}}, nginx},
			tcp,
			"port 8080 is used by pid 812 (nginx), which listens at 127.0.0.1:8080 over TCP",
		},
		{
			"UDP",
			map[string]string{
				"udp": line("3500007F:1F90", "07", 0, 7), "tcp": line("00000000:1F90", "0A", 0, 8),
			},
			[]process{nginx},
			udp, "port 8080 is used by pid 812 (nginx), which listens at 127.0.0.53:8080 over UDP",
		},
		{
			"UDP with a peer",
			map[string]string{"udp": line("0100007F:1F90", "01", 0, 7)},
			[]process{nginx},
			udp,
			"port 8080 is used by pid 812 (nginx), which sends from 127.0.0.1:8080 over UDP",
		},
		{
			"a name with control characters",
			map[string]string{"tcp": line("00000000:1F90", "0A", 0, 7)},
			[]process{{pid: 812, comm: "a\x1b[31m\n\u202eb\xff", sockets: []int{7}}},
			tcp,
			"port 8080 is used by pid 812 (a?[31m??b?), which listens at 0.0.0.0:8080 over TCP",
		},
		{
			"a long name",
			map[string]string{"tcp": line("00000000:1F90", "0A", 0, 7)},
			[]process{{pid: 812, comm: strings.Repeat("é", 100), sockets: []int{7}}},
			tcp,
			"port 8080 is used by pid 812 (" + strings.Repeat("é", 32) + "…), which listens at 0.0.0.0:8080 over TCP",
		},
		{
			"no name",
			map[string]string{"tcp": line("00000000:1F90", "0A", 0, 7)},
			[]process{{pid: 812, sockets: []int{7}}},
			tcp,
			"port 8080 is used by pid 812, which listens at 0.0.0.0:8080 over TCP",
		},
		{
			"no process",
			map[string]string{"tcp": line("00000000:1F90", "0A", 33, 7)},
			nil, tcp,
			"port 8080 is used by the kernel or a program that the agent cannot see, which listens at 0.0.0.0:8080 over TCP",
		},
		{
			"a program that ended",
			map[string]string{"tcp": "nonsense\n" + line("xyz:1F90", "0A", 0, 7)},
			[]process{nginx},
			tcp, "port 8080 is used by a program that ended meanwhile, over TCP",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := draw(t, test.tables, test.processes...)
			if got := m.describe(t.Context(), 8080, test.protocol); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestTaskOfProgram asks for the program that uses a port on a node with tasks.
func TestTaskOfProgram(t *testing.T) {
	tables := map[string]string{"tcp": line("00000000:1F90", "0A", 0, 7)}
	for _, test := range []struct {
		name      string
		processes []process
		want      string
	}{
		{
			"the program of a task",
			[]process{{pid: 812, comm: "nginx", sockets: []int{7}}},
			"pid 812 (nginx) of the task web.1.0",
		},
		{
			"a child of a task's program",
			[]process{{pid: 900, parent: 850, comm: "worker", sockets: []int{7}}, {pid: 850, parent: 812}, {pid: 812}},
			"pid 900 (worker) of the task web.1.0",
		},
		{
			"another program",
			[]process{{pid: 900, parent: 850, comm: "sshd", sockets: []int{7}}, {pid: 850}, {pid: 812}},
			"pid 900 (sshd)",
		},
		{
			"a circle of parents", // each pid was used again meanwhile
			[]process{{pid: 900, parent: 850, comm: "sshd", sockets: []int{7}}, {pid: 850, parent: 900}},
			"pid 900 (sshd)",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := draw(t, tables, test.processes...)
			m.tasks = map[int]string{812: "web.1.0"}
			want := "port 8080 is used by " + test.want + ", which listens at 0.0.0.0:8080 over TCP"
			if got := m.describe(t.Context(), 8080, tcp); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// TestProgramOfAnotherUser asks as a user who may not read the files of others. The sentence names no program, but its
// user.
func TestProgramOfAnotherUser(t *testing.T) {
	testkit.NeedRoot(t)
	port := freePort(t)
	l, err := listenTCP("tcp4", fmt.Sprintf("127.0.0.1:%d", port))()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the process ends anyway
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{envPort + "=" + strconv.Itoa(port)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	got, err := cmd.CombinedOutput()
	want := fmt.Sprintf("port %d is used by a program that the agent may not identify, of the user with id 0, which "+
		"listens at 127.0.0.1:%[1]d over TCP", port)
	if err != nil || string(got) != want {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
}

// envPort is the port that the test program checks, as another user, in place of the tests.
const envPort = "BERTH_TEST_PORT"

func TestMain(m *testing.M) {
	if port, err := strconv.Atoi(os.Getenv(envPort)); err == nil {
		fmt.Print(Free(context.Background(), port, nil))
		return
	}
	os.Exit(m.Run())
}

// TestSearchIsBounded: a machine with too many processes delays nothing.
func TestSearchIsBounded(t *testing.T) {
	m := draw(t, map[string]string{"tcp": line("00000000:1F90", "0A", 33, 7)},
		process{pid: 812, comm: "nginx", sockets: []int{7}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want := "port 8080 is used by a program that the agent did not find in time, which listens at 0.0.0.0:8080 over TCP"
	if got := m.describe(ctx, 8080, tcp); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func FuzzParseSocket(f *testing.F) {
	f.Add(line("0100007F:1F90", "0A", 0, 7))
	f.Add(line(strings.Repeat("0", 32)+":FFFF", "07", 0, 7))
	f.Add("0: : : 0A 1 2 3 4 5 6")
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := parseSocket(text, udp); ok && !s.at.IsValid() {
			t.Errorf("%q is read as %+v", text, s)
		}
	})
}
