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

// addFlags adds the flags. The addresses in allowed are the default of --egress-allow.
func (f *egressFlags) addFlags(cmd *cobra.Command, allowed ...string) {
	standard := "" // the flag shows a default that is not empty
	if len(allowed) == 0 {
		standard = " (default none)"
	}
	cmd.Flags().StringSliceVar(&f.allow, "egress-allow", allowed,
		"`ADDRESS` or prefix of this machine, or of a cloud's metadata service, that gates, "+
			"scaling queries and artifacts may reach; may be given several times"+standard)
	cmd.Flags().StringSliceVar(&f.deny, "egress-deny", nil,
		"`ADDRESS` or prefix that gates, scaling queries, artifacts and image pulls must not "+
			"reach, such as 10.0.0.0/8; may be given several times (default none)")
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
