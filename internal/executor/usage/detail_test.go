package usage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/testkit"
)

const devices = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    999       9    0    0    0     0          0         0      999       9    0    0    0     0       0          0
  eth0: 1000 10 1 2 0 0 0 0 300 3 4 5 0 0 0 0
  eth1:  500  5 0 0 0 0 0 0 200 2 0 0 0 0 0 0
`

func TestDetail(t *testing.T) {
	pressure := func(us string) string {
		return "some avg10=1.00 avg60=0.00 avg300=0.00 total=" + us +
			"\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  cluster.Counts
	}{
		"version 2": {
			files: map[string]string{
				"cgroup.controllers": "",
				"g/cpu.stat": "usage_usec 9\nnr_periods 30\nnr_throttled 20\nthrottled_usec " +
					"4000\nnr_bursts 0\n",
				"g/cpu.pressure": pressure("1000"), "g/memory.pressure": pressure("2000"),
				"g/io.pressure": pressure("3000"),
				"g/io.stat": "8:0 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=5 dios=5\n8:16 rbytes=10 " +
					"wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n",
			},
			want: cluster.Counts{
				Throttle: &cluster.ThrottleCounts{Periods: 30, Throttled: 20, Time: 4 * time.Millisecond},
				Stall: &cluster.StallCounts{
					CPU: time.Millisecond, Memory: 2 * time.Millisecond,
					IO: 3 * time.Millisecond,
				},
				Disk: &cluster.DiskCounts{Read: 110, Written: 220, Reads: 4, Writes: 6},
			},
		},
		"version 2 without the controllers and pressures": {
			files: map[string]string{"cgroup.controllers": "", "g/cpu.stat": "usage_usec 9\nuser_usec 9\n"},
		},
		"version 1 beside version 2": {
			files: map[string]string{
				"cpu/g/cpu.stat": "nr_periods 30\nnr_throttled 20\nthrottled_time 4000000\n",
				"blkio/g/blkio.throttle.io_service_bytes":    "8:0 Read 7\nTotal 7\n",
				"blkio/g/blkio.throttle.io_serviced":         "8:0 Read 1\nTotal 1\n",
				"unified/g/cpu.pressure":                     pressure("1"),
				"unified/g/memory.pressure":                  pressure("2"),
				"unified/g/io.pressure":                      pressure("3"),
				"memory/g/memory.usage_in_bytes":             "1",
				"blkio/x/blkio.throttle.io_serviced":         "8:0 Read 900\n",
				"blkio/g/blkio.throttle.io_queued_recursive": "8:0 Read 900\n",
			},
			want: cluster.Counts{
				Throttle: &cluster.ThrottleCounts{Periods: 30, Throttled: 20, Time: 4 * time.Millisecond},
				Stall: &cluster.StallCounts{
					CPU: time.Microsecond, Memory: 2 * time.Microsecond,
					IO: 3 * time.Microsecond,
				},
				Disk: &cluster.DiskCounts{Read: 7, Reads: 1},
			},
		},
		"version 1, with groups within": {
			files: map[string]string{
				"blkio/g/blkio.throttle.io_service_bytes": "8:0 Read 7\nTotal 7\n",
				"blkio/g/blkio.throttle.io_service_bytes_recursive": "8:0 Read 70\n8:0 Write 30\n8:0 Sync " +
					"100\n8:16 Write 5\nTotal 105\n",
				"blkio/g/blkio.throttle.io_serviced_recursive": "8:0 Read 2\n8:0 Write 1\n8:16 Write 1\nTotal 4\n",
			},
			want: cluster.Counts{Disk: &cluster.DiskCounts{Read: 70, Written: 35, Reads: 2, Writes: 2}},
		},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			m := Meter{Root: tree(t, test.files), Proc: t.TempDir()}
			if diff := cmp.Diff(test.want, m.Detail("/g", executor.Process{Pid: 7})); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetworkIsOfTheNamespace(t *testing.T) {
	proc := tree(t, map[string]string{
		"7/stat": stat(7, 1, 5), "7/net/dev": devices, "8/stat": stat(8, 1, 5),
		"8/net/dev": devices,
	})
	for name, number := range map[string]string{"self": "4026531840", "7": "4026532000", "8": "4026531840"} {
		if err := os.MkdirAll(filepath.Join(proc, name, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("net:["+number+"]", filepath.Join(proc, name, "ns", "net")); err != nil {
			t.Fatal(err)
		}
	}
	m := Meter{Root: t.TempDir(), Proc: proc}
	own := &cluster.NetworkCounts{
		Namespace: 4026532000, Received: 1500, Sent: 500, PacketsIn: 15, PacketsOut: 5,
		Dropped: 7, Failures: 5,
	}
	for name, test := range map[string]struct {
		of   executor.Process
		want cluster.Counts
	}{
		"its own":           {executor.Process{Pid: 7, PidStart: 107}, cluster.Counts{Network: own}},
		"the node's":        {executor.Process{Pid: 8, PidStart: 108}, cluster.Counts{HostNetwork: true}},
		"another's number":  {executor.Process{Pid: 7, PidStart: 3}, cluster.Counts{}},
		"it has ended":      {executor.Process{Pid: 9, PidStart: 109}, cluster.Counts{}},
		"no program to ask": {},
	} {
		if diff := cmp.Diff(test.want, m.Detail("", test.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A program in a namespace of its own sends over a link that leads nowhere; one beside it has the machine's network.
func TestNetworkOfThisMachine(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "ip", "bash")
	run := func(flags uintptr, script string) executor.Process {
		cmd := exec.Command("bash", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // killed
		})
		return executor.Process{Pid: cmd.Process.Pid}
	}
	own := run(syscall.CLONE_NEWNET, `ip link add v0 type veth peer name v1 && ip addr add 198.51.100.1/24 dev v0 && ip link set v0 up && ip link set v1 up &&
		ip neigh add 198.51.100.2 lladdr 02:00:00:00:00:02 dev v0 &&
		for n in 1 2 3 4 5 6 7 8; do echo 0123456789 >/dev/udp/198.51.100.2/9; done; exec sleep 600`)
	host := run(0, "exec sleep 600")
	var m Meter
	testkit.Eventually(t, time.Minute, func() error {
		c := m.Detail("", own)
		if c.HostNetwork || c.Network == nil || c.Network.PacketsOut < 8 || c.Network.Sent < 8*11 {
			return fmt.Errorf("it sent eight packets, counted are %+v", c.Network)
		}
		return nil
	})
	if c := m.Detail("", host); !c.HostNetwork || c.Network != nil {
		t.Errorf("on the machine's network: %+v", c)
	}
}

// The kernel's own files are read as they are: those of the root group of this machine, or of its version 2 beside
// version 1.
func TestPressureOfThisMachine(t *testing.T) {
	t.Parallel()
	for _, group := range []string{Root, Root + "/unified"} {
		b, err := os.ReadFile(group + "/cpu.pressure")
		if err != nil || !strings.HasPrefix(string(b), "some ") {
			continue
		}
		var m Meter
		if s := m.stall(group); s == nil || s.CPU <= 0 {
			t.Errorf("%s says %q, read as %+v", group, b, s)
		}
		return
	}
	testkit.Skip(t, "the kernel keeps no pressures of control groups")
}

// The cost of one reading of the details of 200 containers. An agent reads them every ten seconds.
func BenchmarkDetails(b *testing.B) {
	files := map[string]string{"cgroup.controllers": ""}
	for i := range 200 {
		dir := "berth/u" + strconv.Itoa(i) + "/"
		files[dir+"cpu.stat"] = "usage_usec 9\nnr_periods 30\nnr_throttled 20\nthrottled_usec 4000\n"
		for _, r := range []string{"cpu", "memory", "io"} {
			files[dir+r+".pressure"] = "some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n"
		}
		files[dir+"io.stat"] = "8:0 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=5 dios=5\n"
	}
	m := Meter{Root: tree(b, files)}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 200 {
			if c := m.Detail("/berth/u"+strconv.Itoa(i), executor.Process{Pid: os.Getpid()}); c.Disk == nil {
				b.Fatal("no counts")
			}
		}
	}
}
