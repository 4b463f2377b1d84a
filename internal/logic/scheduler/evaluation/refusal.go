package evaluation

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// IsFeasible reports whether the node does not refuse the class.
func (e *Evaluator) IsFeasible(c *taskclass.Class, slot int32) bool {
	l := e.nodes.Load(slot)
	s := c.Filter
	if l.Class < 0 || !s.IsFeasible[l.Class] || !s.MeetsPerNode(e.nodes.Node(slot)) ||
		c.Task.OnlyNode != "" && c.Task.OnlyNode != e.nodes.Node(slot).Name || slices.Contains(c.Excluded, slot) {
		return false
	}
	code, _ := e.LoadRefusal(c, slot)
	return code == ""
}

// LoadRefusal returns why the node refuses the class because of what runs now, or no code. The number says how much is
// short, which port is taken, or the index of the demand.
func (e *Evaluator) LoadRefusal(c *taskclass.Class, slot int32) (cluster.ReasonCode, int64) {
	if c.Affinity == cluster.AntiAffinityDemand && c.Group.TasksOn(slot) > 0 {
		return cluster.ReasonAntiAffinity, 0
	}
	if code, number := e.UnmetTerm(c, slot); code != "" {
		return code, number
	}
	l := e.nodes.Load(slot)
	if d := c.Demand.CPU; d > 0 && l.Used.CPU+d > l.Capacity.CPU {
		return cluster.ReasonShortCPU, int64(l.Used.CPU + d - l.Capacity.CPU)
	}
	if d := c.Demand.Memory; d > 0 && l.Used.Memory+d > l.Capacity.Memory {
		return cluster.ReasonShortMemory, int64(l.Used.Memory + d - l.Capacity.Memory)
	}
	if d := c.Demand.Disk; d > 0 && l.Used.Disk+d > l.Capacity.Disk {
		return cluster.ReasonShortDisk, int64(l.Used.Disk + d - l.Capacity.Disk)
	}
	if e.MissesDevices(c, slot) {
		return cluster.ReasonDevice, 0
	}
	return e.PortRefusal(c, slot)
}

// PortRefusal is LoadRefusal for ports.
func (e *Evaluator) PortRefusal(c *taskclass.Class, slot int32) (cluster.ReasonCode, int64) {
	if !c.Ports.Any() {
		return "", 0
	}
	if c.Ports.Doubled != 0 {
		return cluster.ReasonPort, int64(c.Ports.Doubled)
	}
	ports := e.nodes.PortsOf(slot)
	if ports == nil {
		ports = &fleet.PortSet{}
	}
	for _, p := range c.Ports.Fixed {
		if ports.Has(p) {
			return cluster.ReasonPort, int64(p)
		}
	}
	if c.Ports.Auto > 0 && ports.AutoUsed+c.Ports.AutoFixed+c.Ports.Auto > fleet.AutoPorts {
		return cluster.ReasonPortsSpent, 0
	}
	return "", 0
}

// Refusal returns why the node refuses the class, for users; without a code if the node is feasible.
func (e *Evaluator) Refusal(c *taskclass.Class, slot int32) cluster.Refusal {
	node := e.nodes.Node(slot)
	if c.Task.OnlyNode != "" && c.Task.OnlyNode != node.Name {
		return feasibility.Elsewhere(c.Task.OnlyNode)
	}
	if code, about := feasibility.Refusal(c.Task, c.Now, node, nil); code != "" {
		return cluster.Refusal{Code: code, Detail: about}
	}
	if slices.Contains(c.Excluded, slot) {
		return cluster.Refusal{Code: cluster.ReasonOldAttempt}
	}
	code, amount := e.LoadRefusal(c, slot)
	switch code {
	case cluster.ReasonPort:
		r := cluster.Refusal{Code: code, Port: int(amount)}
		switch {
		case c.Ports.Doubled == r.Port:
			r.Detail = fmt.Sprintf("the task requests port %d twice", r.Port)
		case slices.Contains(node.ReservedPorts, r.Port):
			r.Detail = fmt.Sprintf("port %d reserved", r.Port)
		default:
			if kept := e.nodes.Fleet.KeptText(node.Name, func(k *fleet.KeptRoom) bool {
				return slices.Contains(k.Ports, r.Port)
			}); kept != "" {
				r.Detail = fmt.Sprintf("port %d %s", r.Port, kept)
			}
		}
		return r
	case cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk:
		return cluster.Refusal{Code: code, Short: amount, Detail: e.keptAmount(code, node.Name)}
	case cluster.ReasonDevice:
		_, lacking, used := devices.Assign(node.Devices, e.nodes.DevicesOf(slot), c.Devices.Requests)
		text, short := devices.Text(node.Devices, used, &c.Devices.Requests[lacking])
		if kept := e.keptDevices(node, &c.Devices.Requests[lacking]); kept != "" {
			text += " (some of them " + kept + ")"
		}
		return cluster.Refusal{Code: code, Detail: text, Short: int64(short)}
	case cluster.ReasonDistinct, cluster.ReasonSkew, cluster.ReasonRelation:
		return cluster.Refusal{Code: code, Detail: e.UnmetTermDetail(c, code, amount, slot)}
	default:
		return cluster.Refusal{Code: code, Short: amount}
	}
}

// keptAmount names the services that keep some of what is short on a node, "" if none does.
func (e *Evaluator) keptAmount(short cluster.ReasonCode, node string) string {
	return e.nodes.Fleet.KeptText(node, func(k *fleet.KeptRoom) bool {
		switch short {
		case cluster.ReasonShortCPU:
			return k.Demand.CPU > 0
		case cluster.ReasonShortMemory:
			return k.Demand.Memory > 0
		default:
			return k.Demand.Disk > 0
		}
	})
}

// keptDevices names the services for which the fleet holds devices that meet a request, "" if there are none.
func (e *Evaluator) keptDevices(node *fleet.Node, r *cluster.DeviceRequest) string {
	return e.nodes.Fleet.KeptText(node.Name, func(k *fleet.KeptRoom) bool {
		return slices.ContainsFunc(k.Held(), func(u cluster.DeviceUse) bool {
			return slices.ContainsFunc(node.Devices, func(d cluster.Device) bool {
				return d.ID == u.ID && devices.Suits(r, &d)
			})
		})
	})
}

// MissesDevices reports whether the node lacks free devices that the class requests.
func (e *Evaluator) MissesDevices(c *taskclass.Class, slot int32) bool {
	if len(c.Devices.Requests) == 0 {
		return false
	}
	list := e.nodes.Node(slot).Devices
	if len(c.Devices.Requests) == 1 && !c.Devices.Requests[0].OneNuma {
		return !devices.HasFree(list, e.nodes.DeviceGroupsOf(slot), &c.Devices.Requests[0])
	}
	_, lacking, _ := devices.Assign(list, e.nodes.DevicesOf(slot), c.Devices.Requests)
	return lacking >= 0
}
