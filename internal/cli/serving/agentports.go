package serving

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
)

const (
	maxPort = 65535
	// maxReservedPorts bounds the reserved ports of a node. The leader keeps each of them in memory for each node.
	maxReservedPorts = 4096
)

// portFlags name the ports of a machine that tasks never get.
type portFlags struct {
	text     string
	reserved []int // sorted, without duplicates
}

func (f *portFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "reserved-ports", "",
		"`PORTS` of this machine that no task gets, fixed or assigned, such as 22,8000-8100")
}

// check parses the flag and adds its faults to list.
func (f *portFlags) check(list *session.Faults) {
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
		if err != nil || low < 1 || high > maxPort || high < low {
			list.Add("--reserved-ports: %q is not a port or a range of ports: want numbers from 1 to %d, "+
				"such as 22,8000-8100", part, maxPort)
			return
		}
		for p := low; p <= high; p++ {
			f.reserved = append(f.reserved, p)
		}
	}
	slices.Sort(f.reserved)
	if f.reserved = slices.Compact(f.reserved); len(f.reserved) > maxReservedPorts {
		list.Add("--reserved-ports names %d ports, at most %d are allowed", len(f.reserved), maxReservedPorts)
	}
}
