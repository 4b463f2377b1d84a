package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// asks is what every task of a definition asks of a node. It is found out once in a decision, and its lists are shared by all tasks that are
// asked for: nobody changes them.
type asks struct {
	demand     cluster.Demand
	devices    []cluster.DeviceRequest
	images     []string
	needsImage bool
}

// asksOf returns what tasks of the definition ask for.
func (p *plan) asksOf(d *cluster.TaskDefinition) *asks {
	if a := p.asked[d]; a != nil {
		return a
	}
	a := &asks{demand: d.Demand(), devices: d.Devices(), images: d.Images(), needsImage: d.NeedsImage()}
	if p.asked == nil {
		p.asked = map[*cluster.TaskDefinition]*asks{}
	}
	p.asked[d] = a
	return a
}

// gang makes the tasks of a step that are asked for one: all that neither live nor have succeeded, those among them that have to wait before
// they are tried again. So they are placed together once the last of them may be.
func gang(template *cluster.Pending, job *cluster.Job, step *cluster.Step, tasks []*slot) {
	if step.Gang == nil {
		return
	}
	template.Gang = fmt.Sprintf("%s.%s.%d", job.Owner(), step.Name, job.Generation)
	for _, s := range tasks {
		if !s.live() && !s.succeeded() {
			template.GangSize++
		}
	}
}
