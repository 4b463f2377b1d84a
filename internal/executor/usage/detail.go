package usage

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Detail returns the kernel's counters of a container apart from CPU and memory, by its control group at path and by
// its program. An empty path means a container without a control group. Counters that the machine lacks are left out.
func (m *Meter) Detail(path string, p executor.Process) cluster.Counts {
	var c cluster.Counts
	c.Network, c.HostNetwork = m.network(p)
	if path == "" {
		return c
	}
	if m.isUnified() {
		group := filepath.Join(m.root(), path)
		c.Throttle = m.throttle(group+"/cpu.stat", "throttled_usec", time.Microsecond)
		c.Stall = m.stall(group)
		c.Disk = m.disk(group + "/io.stat")
		return c
	}
	c.Throttle = m.throttle(filepath.Join(m.root(), "cpu", path, "cpu.stat"), "throttled_time", time.Nanosecond)
	c.Stall = m.stall(filepath.Join(m.root(), "unified", path)) // if version 2 is mounted next to version 1
	c.Disk = m.blocks(filepath.Join(m.root(), "blkio", path))
	return c
}

// isUnified reports whether the machine has version 2 of control groups alone.
func (m *Meter) isUnified() bool {
	if m.unified == nil {
		_, err := os.Stat(filepath.Join(m.root(), "cgroup.controllers"))
		yes := err == nil
		m.unified = &yes
	}
	return *m.unified
}

// throttle reads a cpu.stat, in which times are of a unit under a name.
func (m *Meter) throttle(file, name string, unit time.Duration) *cluster.ThrottleCounts {
	var t cluster.ThrottleCounts
	counted := false
	for line := range bytes.Lines(m.read(file)) {
		key, value, _ := bytes.Cut(line, []byte{' '})
		switch string(key) {
		case "nr_periods":
			t.Periods, counted = whole(value), true
		case "nr_throttled":
			t.Throttled = whole(value)
		case name:
			t.Time = time.Duration(whole(value)) * unit
		}
	}
	if !counted {
		return nil
	}
	return &t
}

// stall reads the pressures of a group of version 2, nil where the kernel keeps none.
func (m *Meter) stall(group string) *cluster.StallCounts {
	var s cluster.StallCounts
	for _, r := range []struct {
		file string
		into *time.Duration
	}{{"/cpu.pressure", &s.CPU}, {"/memory.pressure", &s.Memory}, {"/io.pressure", &s.IO}} {
		// "some avg10=0.00 avg60=0.00 avg300=0.00 total=123", in microseconds, is the first line.
		line, _, _ := bytes.Cut(m.read(group+r.file), []byte{'\n'})
		_, total, found := bytes.Cut(line, []byte(" total="))
		if !found || !bytes.HasPrefix(line, []byte("some ")) {
			return nil
		}
		*r.into = time.Duration(whole(total)) * time.Microsecond
	}
	return &s
}

// disk reads an io.stat: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0" for each device. Without the controller
// there is no file.
func (m *Meter) disk(file string) *cluster.DiskCounts {
	var d cluster.DiskCounts
	b := m.read(file)
	if b == nil {
		return nil
	}
	for word := range bytes.FieldsSeq(b) {
		key, value, _ := bytes.Cut(word, []byte{'='})
		switch string(key) {
		case "rbytes":
			d.Read += cluster.Bytes(whole(value))
		case "wbytes":
			d.Written += cluster.Bytes(whole(value))
		case "rios":
			d.Reads += whole(value)
		case "wios":
			d.Writes += whole(value)
		}
	}
	return &d
}

// blocks reads the same of a group of version 1, including its subgroups: "8:0 Read 123" for each device and operation.
func (m *Meter) blocks(group string) *cluster.DiskCounts {
	var read, written, reads, writes int64
	for _, f := range []struct {
		file    string
		in, out *int64
	}{{"/blkio.throttle.io_service_bytes", &read, &written}, {"/blkio.throttle.io_serviced", &reads, &writes}} {
		b := m.read(group + f.file + "_recursive")
		if b == nil {
			b = m.read(group + f.file)
		}
		if b == nil {
			return nil
		}
		for line := range bytes.Lines(b) {
			words := bytes.Fields(line)
			if len(words) != 3 {
				continue // the total
			}
			switch string(words[1]) {
			case "Read":
				*f.in += whole(words[2])
			case "Write":
				*f.out += whole(words[2])
			}
		}
	}
	return &cluster.DiskCounts{Read: cluster.Bytes(read), Written: cluster.Bytes(written), Reads: reads, Writes: writes}
}

// network sums the interfaces of a process' namespace; where that is this program's own it is the node's.
func (m *Meter) network(p executor.Process) (counts *cluster.NetworkCounts, host bool) {
	if p.Pid <= 0 {
		return nil, false
	}
	proc := m.proc() + "/" + strconv.Itoa(p.Pid)
	theirs, ok := namespace(proc)
	ours, known := namespace(m.proc() + "/self")
	if !ok || !known || theirs == ours {
		return nil, ok && known
	}
	n := cluster.NetworkCounts{Namespace: theirs}
	for line := range bytes.Lines(m.read(proc + "/net/dev")) {
		name, rest, found := bytes.Cut(line, []byte{':'})
		words := bytes.Fields(rest)
		if !found || len(words) < 16 || string(bytes.TrimSpace(name)) == "lo" {
			continue
		}
		n.Received += cluster.Bytes(whole(words[0]))
		n.PacketsIn += whole(words[1])
		n.Sent += cluster.Bytes(whole(words[8]))
		n.PacketsOut += whole(words[9])
		n.Failures += whole(words[2]) + whole(words[10])
		n.Dropped += whole(words[3]) + whole(words[11])
	}
	// Checked last, because the process may have ended meanwhile and its number may be reused.
	if now, ok := m.process(strconv.Itoa(p.Pid)); !ok || p.PidStart != 0 && now.start != p.PidStart {
		return nil, false
	}
	return &n, false
}

// namespace returns the number of a process' network namespace: its link reads "net:[4026531840]".
func namespace(proc string) (uint64, bool) {
	link, err := os.Readlink(proc + "/ns/net")
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "net:["), "]"), 10, 64)
	return n, err == nil
}

// whole reads a number, 0 if there is none.
func whole(b []byte) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64) // the kernel's own files
	return n
}
