package reconciler

import (
	"github.com/berthd/berth/internal/cluster"
)

// requirements holds what every task of a definition requires of a node. It is computed once in a decision. All
// requested tasks share its lists, and they never change.
type requirements struct {
	demand         cluster.Demand
	devices        []cluster.DeviceRequest
	images         []string
	volumes        []string
	volumesPerTask bool // volumes differ by task
	needsImage     bool
	plain          bool
	network        cluster.NetworkMode
	constraints    []cluster.Constraint // on the agent's features and the folders that the node lends
}

// requirementsOf returns the requirements of the definition's tasks.
func (p *plan) requirementsOf(d *cluster.TaskDefinition) *requirements {
	if a := p.requirements[d]; a != nil {
		return a
	}
	a := &requirements{
		demand: d.Demand(), devices: d.Devices(), images: d.Images(), volumes: d.PinnedVolumes(p.owner, ""),
		volumesPerTask: d.Sticks(),
		needsImage:     d.NeedsImage(), plain: len(d.Images()) == 0, network: d.OwnNetwork(),
		constraints: d.Needs(),
	}
	if p.requirements == nil {
		p.requirements = map[*cluster.TaskDefinition]*requirements{}
	}
	p.requirements[d] = a
	return a
}
