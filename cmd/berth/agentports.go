package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

const (
	highestPort = 65535
	// maxReservedPorts bounds how many ports a node keeps from tasks: the leader holds each of them for each node.
	maxReservedPorts = 4096
)

// portFlags say which ports of a machine tasks never get.
type portFlags struct {
	text     string
	reserved []int // ordered, each once
}

func (f *portFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "reserved-ports", "",
		"`PORTS` of this machine that tasks never get, fixed or assigned, such as 22,8000-8100")
}

// check reads the flag and notes what is wrong with it.
func (f *portFlags) check(list *faults) {
	if f.text == "" {
		return
	}
	for part := range strings.SplitSeq(f.text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		low, err := strconv.Atoi(from)
		high := low
		if err == nil && isRange {
			high, err = strconv.Atoi(to)
		}
		if err != nil || low < 1 || high > highestPort || high < low {
			list.add("--reserved-ports: %q is no port and no range of ports: want numbers from 1 to %d, "+
				"such as 22,8000-8100", part, highestPort)
			return
		}
		for p := low; p <= high; p++ {
			f.reserved = append(f.reserved, p)
		}
	}
	slices.Sort(f.reserved)
	if f.reserved = slices.Compact(f.reserved); len(f.reserved) > maxReservedPorts {
		list.add("--reserved-ports names %d ports, at most %d are allowed", len(f.reserved), maxReservedPorts)
	}
}

// portRanges writes ports as the flag reads them: "22,8000-8100".
func portRanges(ports []int) string {
	var parts []string
	for i := 0; i < len(ports); {
		j := i
		for j+1 < len(ports) && ports[j+1] == ports[j]+1 {
			j++
		}
		if part := strconv.Itoa(ports[i]); j == i {
			parts = append(parts, part)
		} else {
			parts = append(parts, fmt.Sprintf("%s-%d", part, ports[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
