package cluster

import (
	"maps"
	"slices"
	"time"
)

// Affinity is a preference for nodes that meet the constraint, or with a negative weight against them.
type Affinity struct {
	Constraint
	// Weight is how much the preference counts beside others, -MaxWeight to MaxWeight and not 0; a negative one keeps
	// tasks away. Default DefaultWeight.
	Weight int `json:"weight,omitempty"`
}

// Weights of preferences. The sum over all preferences that a node meets counts before its free capacity.
const (
	MaxWeight     = 100
	DefaultWeight = 50
)

// Spread wants the tasks of an owner's newest version even over the values of an attribute of nodes.
type Spread struct {
	// Attribute is as in constraints. Nodes that lack it share the value "".
	Attribute string `json:"attribute"`
	// Weight is how much the spread counts beside other preferences, 1 to MaxWeight. Default DefaultWeight.
	Weight int `json:"weight,omitempty"`
	// Targets give each value its share of the tasks; other values share the rest evenly. Without targets all values of
	// feasible nodes have the same share.
	Targets []SpreadTarget `json:"targets,omitempty"`
	// MaxSkew, unless 0, makes the spread a requirement: no value may have more than MaxSkew tasks more than the value
	// with the fewest. It excludes Targets.
	MaxSkew int `json:"max_skew,omitempty"`
}

// SpreadTarget is the share of one value.
type SpreadTarget struct {
	// Value is the value of the attribute whose nodes get the share, such as the name of a rack.
	Value string `json:"value"`
	// Percent is the part of the tasks on such nodes, 0 to 100. The targets of a spread add up to 100 at most.
	Percent int `json:"percent"`
}

// Relation draws a task towards the tasks of other workloads, or keeps it away from them.
type Relation struct {
	// Labels select services and jobs: an owner needs all of them. They may select the task's own owner.
	Labels Labels `json:"labels"`
	// Clusters are the clusters of the selected services and jobs. Default the cluster of the task.
	Clusters []string `json:"clusters,omitempty"`
	// Attribute says what "near" means: an equal value of it. Default node.name, the same node.
	Attribute string `json:"attribute,omitempty"`
	// Away keeps the task away from the selected tasks, instead of near them.
	Away bool `json:"away,omitempty"`
	// Required makes the relation a requirement. A required Away holds both ways: a task with such labels is not placed
	// next to this task either.
	Required bool `json:"required,omitempty"`
	// Weight is how much a preference counts beside others, 1 to MaxWeight. Default DefaultWeight.
	Weight int `json:"weight,omitempty"`
}

// Equal reports whether two relations say the same.
func (r Relation) Equal(o Relation) bool {
	return r.Attribute == o.Attribute && r.Away == o.Away && r.Required == o.Required && r.Weight == o.Weight &&
		slices.Equal(r.Clusters, o.Clusters) && maps.Equal(r.Labels, o.Labels)
}

// KeepsAway returns the relations that keep tasks of other labels away from this one: those that are required, and
// away.
func (p *Placement) KeepsAway() (all []Relation) {
	for _, r := range p.Relations {
		if r.Required && r.Away {
			all = append(all, r)
		}
	}
	return all
}

// Distinct bounds how many tasks of an owner's newest version share a value of an attribute.
type Distinct struct {
	// Attribute is as in constraints; "node.name" is distinct hosts.
	Attribute string `json:"attribute"`
	// Most is the maximum number of tasks with one value. Default 1.
	Most int `json:"most,omitempty"`
}

// TaintEffect is the effect of a taint on tasks that do not tolerate it.
type TaintEffect string

// Effects of taints.
const (
	TaintNoSchedule TaintEffect = "no-schedule" // keeps new tasks away
	TaintAvoid      TaintEffect = "avoid"       // keeps them away if another node suffices
	TaintEvict      TaintEffect = "evict"       // keeps them away, and moves those that run
)

// Values returns every TaintEffect, in the order of the constants.
func (TaintEffect) Values() []TaintEffect {
	return []TaintEffect{TaintNoSchedule, TaintAvoid, TaintEvict}
}

// Taint keeps tasks away from a node that do not tolerate it. The operator sets it on the host.
type Taint struct {
	Key    string      `json:"key"`
	Value  string      `json:"value,omitempty"`
	Effect TaintEffect `json:"effect,omitempty"` // default TaintNoSchedule
	// Since is when the node got the taint. A client's value is ignored.
	Since time.Time `json:"since,omitzero"`
}

// Toleration admits a task to nodes with a taint. Without a Key it tolerates every taint, without a Value every value
// of its key, and without an Effect every effect.
type Toleration struct {
	// Key is the key of the taints that the task tolerates. Default: every taint.
	Key string `json:"key,omitempty"`
	// Value is the value of the taints that the task tolerates. Default: every value of Key.
	Value string `json:"value,omitempty"`
	// Effect is the effect of the taints that the task tolerates. Default: every effect.
	Effect TaintEffect `json:"effect,omitempty"`
	// For, unless 0, is how long a running task may stay after its node got the taint, for the effect evict only. It
	// does not admit new tasks.
	For Duration `json:"for,omitempty"`
}

// Tolerates reports whether the toleration lets a task onto nodes with the taint, and lets it stay there.
func (t Toleration) Tolerates(taint Taint) bool { return t.For == 0 && t.about(taint) }

func (t Toleration) about(taint Taint) bool {
	return (t.Key == "" || t.Key == taint.Key) && (t.Value == "" || t.Value == taint.Value) &&
		(t.Effect == "" || t.Effect == taint.effect())
}

// Evicts returns the first taint that evicts a running task from a node, and until when the task may stay. If several
// tolerations match a taint, the longest counts. ok is false if no taint evicts the task.
func (p *Placement) Evicts(taints []Taint) (by Taint, until time.Time, ok bool) {
	for _, t := range taints {
		if t.Effect != TaintEvict || slices.ContainsFunc(p.Tolerations, func(o Toleration) bool {
			return o.Tolerates(t)
		}) {
			continue
		}
		stays := Duration(0)
		for _, o := range p.Tolerations {
			if o.about(t) {
				stays = max(stays, o.For)
			}
		}
		if at := t.Since.Add(time.Duration(stays)); !ok || at.Before(until) {
			by, until, ok = t, at, true
		}
	}
	return by, until, ok
}

func (t Taint) effect() TaintEffect {
	if t.Effect == "" {
		return TaintNoSchedule
	}
	return t.Effect
}

// WholeDevice is the share of a whole device, in thousandths.
const WholeDevice = 1000

// Device is one device of a node that tasks may reserve.
type Device struct {
	// ID names it on its node, such as a UUID or a CDI name.
	ID string `json:"id"`
	// Type is such as "gpu", Model such as "A100"; Memory is its own, 0 where that is not known.
	Type   string `json:"type"`
	Model  string `json:"model,omitempty"`
	Memory Bytes  `json:"memory,omitempty"`
	// Numa is the NUMA node that it is attached to, -1 where that is not known.
	Numa int `json:"numa"`
}

// DeviceRequest is a task's request for devices of one type.
type DeviceRequest struct {
	// Type is the kind of device, as `berth node status` shows it. Default DefaultDeviceType.
	Type string `json:"type,omitempty"`
	// Models are the accepted models; empty accepts any.
	Models []string `json:"models,omitempty"`
	// Count is the number of whole devices, 1 to MaxDevices. Default 1. With a Share it is 1.
	Count int `json:"count,omitempty"`
	// Share, unless 0, is a part of one device in thousandths, 1 to WholeDevice. Other tasks get the rest.
	Share int `json:"share,omitempty"`
	// Memory is the least memory of each device; with a Share, the memory that the task reserves of it.
	Memory Bytes `json:"memory,omitempty"`
	// OneNuma says that all devices of such requests are on one NUMA node. It follows from Resources.CPUPinning.
	// Devices on an unknown NUMA node match any.
	OneNuma bool `json:"-"`
}

// DeviceUse is a task's reservation of one device of its node.
type DeviceUse struct {
	ID string `json:"id"`
	// Share is in thousandths, WholeDevice for the whole device. Memory is the reserved part of its memory; a whole
	// device has none left for others, whatever Memory is.
	Share  int   `json:"share"`
	Memory Bytes `json:"memory,omitempty"`
}

// Gang is tasks of a step that run all at the same time or not at all.
type Gang struct {
	// Deadline is how long its tasks wait for places together before the step fails; 0 is no limit.
	Deadline Duration `json:"deadline,omitempty"`
}
