package ports

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/berthd/berth/internal/executor/outlive"
)

// protocol is a transport protocol, by the word that users read.
type protocol string

const (
	tcp protocol = "TCP"
	udp protocol = "UDP"
)

// maxNameLength bounds the name of a program in a sentence, in characters. The kernel keeps 15 bytes of most names.
const maxNameLength = 32

// maxAncestors bounds the search for the task of a process, in generations of processes.
const maxAncestors = 64

// machine reads the kernel's files below a folder, which is /proc except in tests.
type machine struct {
	proc string
	// tasks are the ids of tasks by the pids of their containers.
	tasks map[int]string
}

// describe returns a sentence about what uses a port.
func (m machine) describe(ctx context.Context, port int, p protocol) string {
	found := m.sockets(port, p)
	if len(found) == 0 {
		return fmt.Sprintf("port %d is used by a program that ended meanwhile, over %s", port, p)
	}
	owners, denied := m.owners(ctx, found)
	for i := range found {
		if pid, ok := owners[found[i].inode]; ok {
			return fmt.Sprintf("port %d is used by %s, which %s", port, m.program(pid)+m.task(pid), found[i].use(p))
		}
	}
	who := "by the kernel or a program that the agent cannot see"
	switch {
	case ctx.Err() != nil:
		who = "by a program that the agent did not find in time"
	case denied:
		who = fmt.Sprintf("by a program that the agent may not identify, of the user with id %d", found[0].user)
	}
	return fmt.Sprintf("port %d is used %s, which %s", port, who, found[0].use(p))
}

// socket is a line of the kernel's tables of sockets.
type socket struct {
	at      netip.AddrPort
	listens bool
	user    int
	inode   uint64
}

// use says how a program uses the port: "listens at 0.0.0.0:80 over TCP".
func (s *socket) use(p protocol) string {
	verb := "sends from"
	if s.listens {
		verb = "listens at"
	}
	return fmt.Sprintf("%s %s over %s", verb, s.at, p)
}

// sockets returns the sockets that use a port. Those that listen are the first. Connections that are closed already and
// belong to no program are left out.
func (m machine) sockets(port int, p protocol) (found []socket) {
	name := strings.ToLower(string(p))
	for _, table := range []string{name, name + "6"} { // without IPv6 the second is missing
		text, _ := os.ReadFile(filepath.Join(m.proc, "net", table))
		for line := range strings.Lines(string(text)) {
			s, ok := parseSocket(line, p)
			if ok && int(s.at.Port()) == port && s.inode != 0 {
				found = append(found, s)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b socket) int { return cmp.Compare(a.rank(), b.rank()) })
	return found
}

// rank orders sockets: a smaller rank comes first.
func (s *socket) rank() int {
	if s.listens {
		return 0
	}
	return 1
}

// States of sockets in the kernel's tables (include/net/tcp_states.h). A UDP socket without a connection is "closed".
const (
	stateListens = "0A"
	stateClosed  = "07"
)

// parseSocket reads a line of /proc/net/tcp, tcp6, udp or udp6. Its fields are described in proc(5).
func parseSocket(line string, p protocol) (socket, bool) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return socket{}, false
	}
	at, ok := parseAddress(f[1])
	user, err := strconv.Atoi(f[7])
	inode, err2 := strconv.ParseUint(f[9], 10, 64)
	listens := f[3] == stateListens || p == udp && f[3] == stateClosed
	return socket{at: at, listens: listens, user: user, inode: inode}, ok && err == nil && err2 == nil
}

// parseAddress reads an address such as 0100007F:1F90. The kernel prints each group of four bytes as a number of this
// machine.
func parseAddress(text string) (netip.AddrPort, bool) {
	address, port, ok := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	b, err2 := hex.DecodeString(address)
	if !ok || err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	at, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(at.Unmap(), uint16(number)), true
}

// owners returns the process of each socket, by its inode. Of several processes with one socket, such as a server and
// its workers, it is the oldest. Denied says that the files of other processes are closed to the agent.
func (m machine) owners(ctx context.Context, sockets []socket) (owners map[uint64]int, denied bool) {
	links := map[string]uint64{}
	for i := range sockets {
		links[fmt.Sprintf("socket:[%d]", sockets[i].inode)] = sockets[i].inode
	}
	owners = map[uint64]int{}
	entries, _ := os.ReadDir(m.proc)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		inodes, err := m.open(pid, links)
		denied = denied || errors.Is(err, fs.ErrPermission)
		for _, inode := range inodes {
			if first, ok := owners[inode]; !ok || m.older(pid, first) {
				owners[inode] = pid
			}
		}
	}
	return owners, denied
}

// open returns which of the sockets a process has open. Processes that ended have none.
func (m machine) open(pid int, links map[string]uint64) (inodes []uint64, err error) {
	dir := m.path(pid, "fd")
	files, err := os.ReadDir(dir)
	for _, file := range files {
		link, failed := os.Readlink(filepath.Join(dir, file.Name()))
		if inode, ok := links[link]; ok {
			inodes = append(inodes, inode)
		}
		err = cmp.Or(err, failed)
	}
	return inodes, err
}

// older reports whether process a began before process b.
func (m machine) older(a, b int) bool {
	began, beganB := m.began(a), m.began(b)
	return began < beganB || began == beganB && a < b
}

// began returns when a process began, in ticks since boot.
func (m machine) began(pid int) uint64 { return m.stat(pid).Start }

// stat returns what the kernel says of a process, nothing of one that has ended.
func (m machine) stat(pid int) outlive.Stat {
	text, _ := os.ReadFile(m.path(pid, "stat"))
	stat, _ := outlive.ParseStat(string(text))
	return stat
}

// task names the task that a process belongs to, as the end of a phrase: " of the task web.1.0". It is empty for other
// programs, and for one whose parent has ended.
func (m machine) task(pid int) string {
	for range maxAncestors {
		if id, ok := m.tasks[pid]; ok {
			return " of the task " + id
		}
		if pid = m.stat(pid).Parent; pid <= 1 {
			break
		}
	}
	return ""
}

// program returns the pid and the name of a program: "pid 812 (nginx)". The name is the kernel's short one. Command
// lines may hold secrets and are never read.
func (m machine) program(pid int) string {
	text, _ := os.ReadFile(m.path(pid, "comm"))
	name := printable(strings.TrimSuffix(string(text), "\n"))
	if name == "" {
		return fmt.Sprintf("pid %d", pid)
	}
	return fmt.Sprintf("pid %d (%s)", pid, name)
}

// printable returns a name that another user chose with a question mark in place of each character that is not
// printable, and of bounded length.
func printable(name string) string {
	var b strings.Builder
	length := 0
	for _, r := range name {
		if length++; length > maxNameLength {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (m machine) path(pid int, file string) string {
	return filepath.Join(m.proc, strconv.Itoa(pid), file)
}
