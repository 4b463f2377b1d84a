package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// isFeasible reports whether the node does not refuse the class.
func (e *evaluator) isFeasible(c *taskClass, slot int32) bool {
	l := e.nodes.load(slot)
	s := c.filter
	if l.class < 0 || !s.isFeasible[l.class] || !s.meetsPerNode(e.nodes.node(slot)) ||
		c.task.OnlyNode != "" && c.task.OnlyNode != e.nodes.node(slot).Name || slices.Contains(c.excluded, slot) {
		return false
	}
	code, _ := e.loadRefusal(c, slot)
	return code == ""
}

// loadRefusal returns why the node refuses the class because of what runs now, or no code. The number says how much is
// short, which port is taken, or the index of the demand.
func (e *evaluator) loadRefusal(c *taskClass, slot int32) (cluster.ReasonCode, int64) {
	if c.affinity == cluster.AntiAffinityDemand && c.group.tasksOn(slot) > 0 {
		return cluster.ReasonAntiAffinity, 0
	}
	if code, number := e.unmetTerm(c, slot); code != "" {
		return code, number
	}
	l := e.nodes.load(slot)
	if d := c.demand.CPU; d > 0 && l.used.CPU+d > l.capacity.CPU {
		return cluster.ReasonShortCPU, int64(l.used.CPU + d - l.capacity.CPU)
	}
	if d := c.demand.Memory; d > 0 && l.used.Memory+d > l.capacity.Memory {
		return cluster.ReasonShortMemory, int64(l.used.Memory + d - l.capacity.Memory)
	}
	if d := c.demand.Disk; d > 0 && l.used.Disk+d > l.capacity.Disk {
		return cluster.ReasonShortDisk, int64(l.used.Disk + d - l.capacity.Disk)
	}
	if e.missesDevices(c, slot) {
		return cluster.ReasonDevice, 0
	}
	return e.portRefusal(c, slot)
}

// portRefusal is loadRefusal for ports.
func (e *evaluator) portRefusal(c *taskClass, slot int32) (cluster.ReasonCode, int64) {
	if !c.ports.any() {
		return "", 0
	}
	if c.ports.doubled != 0 {
		return cluster.ReasonPort, int64(c.ports.doubled)
	}
	ports := e.nodes.portsOf(slot)
	if ports == nil {
		ports = &portSet{}
	}
	for _, p := range c.ports.fixed {
		if ports.has(p) {
			return cluster.ReasonPort, int64(p)
		}
	}
	if c.ports.auto > 0 && ports.autoUsed+c.ports.autoFixed+c.ports.auto > autoPorts {
		return cluster.ReasonPortsSpent, 0
	}
	return "", 0
}

// refusal returns why the node refuses the class, for users; without a code if the node is feasible.
func (e *evaluator) refusal(c *taskClass, slot int32) cluster.Refusal {
	node := e.nodes.node(slot)
	if c.task.OnlyNode != "" && c.task.OnlyNode != node.Name {
		return elsewhere(c.task.OnlyNode)
	}
	if code, about := nodeRefusal(c.task, c.now, node, nil); code != "" {
		return cluster.Refusal{Code: code, Detail: about}
	}
	if slices.Contains(c.excluded, slot) {
		return cluster.Refusal{Code: cluster.ReasonOldAttempt}
	}
	code, amount := e.loadRefusal(c, slot)
	switch code {
	case cluster.ReasonPort:
		return cluster.Refusal{Code: code, Port: int(amount)}
	case cluster.ReasonDevice:
		_, lacking, used := assign(node.Devices, e.nodes.devicesOf(slot), c.devices.requests)
		text, short := deviceText(node.Devices, used, &c.devices.requests[lacking])
		return cluster.Refusal{Code: code, Detail: text, Short: int64(short)}
	case cluster.ReasonDistinct, cluster.ReasonSkew, cluster.ReasonRelation:
		return cluster.Refusal{Code: code, Detail: e.unmetTermDetail(c, code, amount, slot)}
	default:
		return cluster.Refusal{Code: code, Short: amount}
	}
}

// missesDevices reports whether the node lacks free devices that the class asks for.
func (e *evaluator) missesDevices(c *taskClass, slot int32) bool {
	if len(c.devices.requests) == 0 {
		return false
	}
	list := e.nodes.node(slot).Devices
	if len(c.devices.requests) == 1 && !c.devices.requests[0].OneNuma {
		return !hasFree(list, e.nodes.deviceGroupsOf(slot), &c.devices.requests[0])
	}
	_, lacking, _ := assign(list, e.nodes.devicesOf(slot), c.devices.requests)
	return lacking >= 0
}
