package serving

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/diskspace"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/executor/containerd"
)

// imageFlags configure the agent's image cache.
type imageFlags struct {
	high, low float64
	pulls     int
}

func (f *imageFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&f.high, "image-high", diskspace.DefaultImageHigh,
		"`PERCENT` of use of the disk with images and artifacts at which the agent begins to "+
			"remove unused ones; 100 for never")
	cmd.Flags().Float64Var(&f.low, "image-low", diskspace.DefaultImageLow,
		"`PERCENT`: stop removing below this use of the disk")
	cmd.Flags().IntVar(&f.pulls, "pulls", containerd.DefaultPulls,
		"how many images are pulled at a time; one slot is kept free of the busiest registry, so that a slow "+
			"registry does not block the others")
}

// check adds the faults of the flags to list.
func (f *imageFlags) check(list *session.Faults) {
	if !(f.high > 0 && f.high <= 100) { // refuses NaN too
		list.Add("--image-high %v: want a percentage above 0 and at most 100", f.high)
	}
	if !(f.low > 0 && f.low <= f.high) {
		list.Add("--image-low %v: want a percentage above 0 and at most that of --image-high", f.low)
	}
	if f.pulls < 1 || f.pulls > 100 {
		list.Add("--pulls %d: want 1 to 100", f.pulls)
	}
}
