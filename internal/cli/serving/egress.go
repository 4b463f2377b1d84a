package serving

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/egress"
)

// egressFlags restrict the addresses that Berth calls on behalf of users.
type egressFlags struct {
	allow, deny []string
	parsed      egress.Policy
}

// What the processes request on behalf of users, for the help of the flags.
const (
	serverRequests = "gates and queries for scaling"
	agentRequests  = "downloads of artifacts and images"
	devRequests    = "gates, queries for scaling, and downloads of artifacts and images"
)

// addFlags adds the flags for what requests names. The addresses in allowed are the default of --egress-allow.
func (f *egressFlags) addFlags(cmd *cobra.Command, requests string, allowed ...string) {
	standard := "none"
	if len(allowed) > 0 {
		standard = strings.Join(allowed, ", ")
	}
	cmd.Flags().StringSliceVar(&f.allow, "egress-allow", allowed,
		"`ADDRESS` or prefix that "+requests+" may reach though it is the "+
			"machine's own or a cloud's metadata service; may be given several times (default "+standard+")")
	cmd.Flags().StringSliceVar(&f.deny, "egress-deny", nil,
		"`ADDRESS` or prefix that "+requests+" never reach, such as 10.0.0.0/8; may be given several times "+
			"(default none)")
}

// check parses the flags and adds their faults to list.
func (f *egressFlags) check(list *session.Faults) {
	var err error
	if f.parsed, err = egress.New(f.allow, f.deny); err != nil {
		for fault := range strings.SplitSeq(err.Error(), "\n") {
			list.Add("--egress-%s", fault)
		}
	}
}
