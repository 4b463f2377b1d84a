package devices

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// corePrefix begins the ID of a core; its CPU's number follows.
const corePrefix = "cpu"

// maxCPU is the highest CPU number that is searched.
const maxCPU = 1023

// Usable returns the CPUs that this process may run on, in order: tasks can get these.
func Usable() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs that may be used: %w", err)
	}
	var all []int
	for i := range maxCPU + 1 {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all, nil
}

// ParseCPUs reads a list of CPUs in the kernel's format, such as "0-3,8". The result is ordered and has no duplicates.
func ParseCPUs(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || from < 0 || to < from || to > maxCPU {
			return nil, fmt.Errorf("%q is not a list of CPUs: want such as 2-5,8", text)
		}
		for i := from; i <= to; i++ {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// FormatCPUs writes CPUs in the format of ParseCPUs; they must be ordered.
func FormatCPUs(cpus []int) string {
	var out []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if i == j {
			out = append(out, strconv.Itoa(cpus[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", cpus[i], cpus[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ",")
}

// CPU returns the CPU number of a core device; ok is false for other devices.
func CPU(id string) (number int, ok bool) {
	rest, ok := strings.CutPrefix(id, corePrefix)
	n, err := strconv.Atoi(rest)
	if !ok || err != nil || n < 0 || n > maxCPU || strconv.Itoa(n) != rest {
		return 0, false
	}
	return n, true
}

// cores returns the CPUs that tasks may have exclusively, as devices with their NUMA nodes. On a machine without NUMA
// information all belong to node 0.
func (f *Finder) cores() (all []Device) {
	if len(f.Cores) == 0 {
		return nil
	}
	of := map[int]int{}
	for _, folder := range f.glob("/sys/devices/system/node/node[0-9]*") {
		numa, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "node"))
		cpus, errList := ParseCPUs(f.read(filepath.Join(folder, "cpulist")))
		if err != nil || errList != nil {
			continue // a node with memory only
		}
		for _, cpu := range cpus {
			of[cpu] = numa
		}
	}
	for _, cpu := range f.Cores {
		all = append(all, Device{
			Device: cluster.Device{ID: corePrefix + strconv.Itoa(cpu), Type: cluster.CoreType, Numa: of[cpu]},
		})
	}
	return all
}
