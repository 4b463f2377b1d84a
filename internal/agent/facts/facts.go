// Package facts determines the facts of the machine that an agent runs on: the resources for tasks, its addresses, and
// the current boot.
//
// It reads files of Linux. Facts that cannot be determined stay empty and are named in the error, so that an unusual
// node can still join.
package facts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// Gather returns the machine's facts, except those that the agent knows itself: executors, labels, reserved ports and
// version. Disk is the capacity of the file system that holds dir. The error joins all failures; the other facts are
// valid nevertheless.
func Gather(dir string) (cluster.Facts, error) {
	f := cluster.Facts{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cluster.MilliCPU(runtime.NumCPU()) * 1000}
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	var err error
	f.Hostname, err = os.Hostname()
	note("hostname", err)
	var uname unix.Utsname
	note("kernel", unix.Uname(&uname))
	f.Kernel = unix.ByteSliceToString(uname.Release[:])
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	note("boot id", err)
	f.BootID = string(bytes.TrimSpace(b))
	f.Memory, err = memory("/proc/meminfo")
	note("memory", err)
	limits := new(Sampler).group()
	if limits.memory > 0 {
		f.Memory = min(f.Memory, limits.memory)
	}
	if limits.quota > 0 {
		f.CPU = min(f.CPU, limits.quota)
	}
	f.Disk, err = capacity(dir)
	note("disk", err)
	f.Disks, err = disks("/proc/self/mountinfo")
	note("disks", err)
	f.Addresses, err = addresses()
	note("addresses", err)
	f.Address = address(f.Addresses)
	f.Hardware = Hardware("/")
	return f, errors.Join(errs...)
}

// memory reads MemTotal.
func memory(path string) (cluster.Bytes, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if field := strings.Fields(line); len(field) >= 2 && field[0] == "MemTotal:" {
			n, err := strconv.ParseInt(field[1], 10, 64)
			return cluster.Bytes(n) * cluster.KiB, err
		}
	}
	return 0, errors.New("no MemTotal in " + path)
}

func capacity(dir string) (cluster.Bytes, error) {
	f, err := statfs(dir)
	return size(f.Blocks, f.Bsize), err
}

func size(blocks uint64, block int64) cluster.Bytes {
	return cluster.Bytes(blocks) * cluster.Bytes(block) // no disk has 2^63 bytes
}

// disks returns the file systems on devices, each once, ordered by mount point.
func disks(path string) ([]cluster.DiskFact, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []cluster.DiskFact
	seen := map[string]bool{}
	for _, m := range mounts(b) {
		if !strings.HasPrefix(m.source, "/dev/") || strings.HasPrefix(m.source, "/dev/loop") || seen[m.source] {
			continue
		}
		var fs unix.Statfs_t
		if unix.Statfs(m.point, &fs) != nil || fs.Blocks == 0 {
			continue
		}
		seen[m.source] = true
		found = append(found, cluster.DiskFact{
			Mount: m.point, Type: m.kind,
			Total: size(fs.Blocks, fs.Bsize), Free: size(fs.Bavail, fs.Bsize),
		})
	}
	slices.SortFunc(found, func(a, b cluster.DiskFact) int { return strings.Compare(a.Mount, b.Mount) })
	return found, nil
}

type mount struct{ point, kind, source string }

// mounts parses a mountinfo file: "id parent dev root POINT options … - KIND SOURCE options". It skips lines of
// another form.
func mounts(b []byte) (found []mount) {
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		head, tail, ok := strings.Cut(lines.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if ok && len(h) >= 5 && len(t) >= 2 {
			found = append(found, mount{unescape(h[4]), t[0], unescape(t[1])})
		}
	}
	return found
}

// unescape replaces the octal escapes with which the kernel writes spaces and similar characters.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// addresses returns the addresses of all interfaces that are up, without loopback and link-local ones; IPv4 first.
func addresses() ([]string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for i := range interfaces {
		if interfaces[i].Flags&net.FlagUp == 0 || interfaces[i].Flags&net.FlagLoopback != 0 {
			continue
		}
		list, err := interfaces[i].Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				found = append(found, p.Addr())
			}
		}
	}
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	text := make([]string, len(found))
	for i, a := range found {
		text[i] = a.String()
	}
	return text, nil
}

// address returns the machine's address on the route to other networks, otherwise its first address, otherwise
// loopback. The route lookup sends no packet.
func address(all []string) string {
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil { //nolint:noctx // does not block: no packet is sent
		defer func() { _ = c.Close() }()
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok && slices.Contains(all, a.IP.String()) {
			return a.IP.String()
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return "127.0.0.1"
}
