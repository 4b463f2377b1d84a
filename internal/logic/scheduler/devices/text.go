package devices

import (
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Text describes a request that a node does not meet, and returns how many whole devices are short.
func Text(list []cluster.Device, used Uses, r *cluster.DeviceRequest) (text string, short int) {
	kind := r.Type
	if len(r.Models) > 0 {
		kind += " of model " + strings.Join(r.Models, " or ")
	}
	if r.Memory > 0 && r.Share == 0 {
		kind += " with " + r.Memory.String()
	}
	have, part := 0, 0
	for i := range list {
		if !Suits(r, &list[i]) {
			continue
		}
		have++
		if u := used.of(list[i].ID); u.Share > 0 && u.Share < cluster.WholeDevice {
			part++
		}
	}
	switch {
	case have == 0:
		return "no " + kind, 0
	case r.OneNuma:
		return oneNumaText(list, used, r, kind)
	case r.Share > 0:
		return "no " + kind + " with enough left to share", 0
	case part > 0:
		return "too few " + kind + " free, some are used in part", r.Count - len(freeDevices(list, used, r))
	}
	return "too few " + kind + " free", r.Count - len(freeDevices(list, used, r))
}
