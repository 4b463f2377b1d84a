package facts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Scarcity is how short of memory a machine is.
type Scarcity struct {
	// Stall is the share of the last ten seconds in which all programs waited for memory, in percent; -1 if the kernel
	// does not report it (PSI).
	Stall float64
	// Free is the part of Total that programs can still get.
	Free, Total cluster.Bytes
	// Used is the use of all tasks together. Limit is their limit, 0 for none.
	Used, Limit cluster.Bytes
}

// Scarcity measures how short of memory the machine is. Tasks is the control group of all tasks, such as "/berth", or
// empty. The error joins all failures; the machine's own values are valid nevertheless.
func (m *Sampler) Scarcity(tasks string) (Scarcity, error) {
	s := Scarcity{Stall: -1}
	var errs []error
	fields, err := meminfo(m.path("/proc/meminfo"))
	if err != nil {
		errs = append(errs, err)
	}
	s.Total, s.Free = fields["MemTotal:"], fields["MemAvailable:"]
	own := m.group()
	if own.memory > 0 && own.memory < s.Total { // the kernel's stall is the machine's, not the container's
		used, err := own.memoryUsed()
		if err != nil {
			errs = append(errs, err)
		}
		s.Total, s.Free = own.memory, own.memory-min(used, own.memory)
		s.Stall = stall(m.path(cgroups + "memory.pressure"))
	} else {
		s.Stall = stall(m.path("/proc/pressure/memory"))
	}
	if tasks == "" {
		return s, errors.Join(errs...)
	}
	g := group{v2: own.v2, path: func(p string) string {
		rest := strings.TrimPrefix(p, cgroups)
		if own.v2 {
			return m.path(cgroups + strings.Trim(tasks, "/") + "/" + rest)
		}
		controller, file, _ := strings.Cut(rest, "/")
		return m.path(cgroups + controller + "/" + strings.Trim(tasks, "/") + "/" + file)
	}}
	limit := "memory.max"
	if !g.v2 {
		limit = "memory/memory.limit_in_bytes"
	}
	if s.Limit = cluster.Bytes(number(g.read(limit))); s.Limit <= 0 || s.Limit >= s.Total {
		s.Limit = 0
		return s, errors.Join(errs...)
	}
	if s.Used, err = g.memoryUsed(); err != nil {
		s.Limit = 0
		errs = append(errs, fmt.Errorf("the tasks' memory: %w", err))
	}
	if g.v2 {
		s.Stall = max(s.Stall, stall(g.path(cgroups+"memory.pressure")))
	}
	return s, errors.Join(errs...)
}

// stall reads "full avg10" of a pressure file of the kernel, -1 if there is none.
func stall(name string) float64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) < 2 || f[0] != "full" {
			continue
		}
		text, found := strings.CutPrefix(f[1], "avg10=")
		if share, err := strconv.ParseFloat(text, 64); found && err == nil {
			return share
		}
	}
	return -1
}
