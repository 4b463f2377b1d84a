package reconciler

import (
	"github.com/berthd/berth/internal/cluster"
)

// asks is what every task of a definition asks of a node. It is found out once in a decision, and its lists are shared
// by all tasks that are asked for: nobody changes them.
type asks struct {
	demand     cluster.Demand
	devices    []cluster.DeviceRequest
	images     []string
	volumes    []string
	keyed      bool // volumes are of the single task
	needsImage bool
	plain      bool
	network    cluster.NetworkMode
	needs      []cluster.Constraint // on what its agent does, and lends
}

// asksOf returns what tasks of the definition ask for.
func (p *plan) asksOf(d *cluster.TaskDefinition) *asks {
	if a := p.asked[d]; a != nil {
		return a
	}
	a := &asks{
		demand: d.Demand(), devices: d.Devices(), images: d.Images(), volumes: d.PinnedVolumes(p.owner, ""),
		keyed:      d.Sticks(),
		needsImage: d.NeedsImage(), plain: len(d.Images()) == 0, network: d.OwnNetwork(), needs: d.Needs(),
	}
	if p.asked == nil {
		p.asked = map[*cluster.TaskDefinition]*asks{}
	}
	p.asked[d] = a
	return a
}
