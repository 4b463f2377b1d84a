package serving

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/cli/session"
)

// pressureFlags set the thresholds of memory pressure.
type pressureFlags struct{ stall, free float64 }

func (p *pressureFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&p.stall, "pressure-stall", usage.DefaultPressureStall,
		"`PERCENT` of the time that tasks wait for memory, above which the node is short of memory and moves a "+
			"task away (needs the kernel's pressure information)")
	cmd.Flags().Float64Var(&p.free, "pressure-free", usage.DefaultPressureFree,
		"`PERCENT` of free memory below which the node is short of memory (used without the kernel's pressure "+
			"information)")
}

// check adds the faults of the flags to list. It refuses 0, which means the default in the agent's configuration.
func (p *pressureFlags) check(list *session.Faults) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"stall", p.stall}, {"free", p.free}} {
		if !(f.value > 0 && f.value <= 100) { // refuses NaN too
			list.Add("--pressure-%s %v: want a percentage above 0 and at most 100", f.name, f.value)
		}
	}
}
