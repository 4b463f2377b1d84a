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

// Requests of the processes on behalf of users, for the help of the flags.
const (
	serverRequests = "gates and scaling queries"
	agentRequests  = "artifacts and image pulls"
	devRequests    = "gates, scaling queries, artifacts and image pulls"
)

// addFlags adds the flags for what requests names. The addresses in allowed are the default of --egress-allow.
func (f *egressFlags) addFlags(cmd *cobra.Command, requests string, allowed ...string) {
	standard := "" // the flag shows a default that is not empty
	if len(allowed) == 0 {
		standard = " (default none)"
	}
	cmd.Flags().StringSliceVar(&f.allow, "egress-allow", allowed,
		"`ADDRESS` or prefix of this machine, or of a cloud's metadata service, that "+requests+
			" may reach; may be given several times"+standard)
	cmd.Flags().StringSliceVar(&f.deny, "egress-deny", nil,
		"`ADDRESS` or prefix that "+requests+" must not reach, such as 10.0.0.0/8; may be given several times "+
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
