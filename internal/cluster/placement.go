package cluster

import (
	"maps"
	"slices"
	"time"
)

// Affinity is a wish, or with a negative weight a dislike: nodes that meet the constraint are better, or worse, by the
// weight.
type Affinity struct {
	Constraint
	// Weight is from -MaxWeight to MaxWeight, and not 0. Default DefaultWeight.
	Weight int `json:"weight,omitempty"`
}

// Weights of wishes: the sum of the weights of all wishes of a task that a node meets decides before how full it is.
const (
	MaxWeight     = 100
	DefaultWeight = 50
)

// Spread wants the tasks of an owner's newest version even over the values of an attribute of nodes.
type Spread struct {
	// Attribute is as in constraints. Nodes that lack it share the value "".
	Attribute string `json:"attribute"`
	// Weight is 1 to MaxWeight. Default DefaultWeight.
	Weight int `json:"weight,omitempty"`
	// Targets say which share of the tasks each value should have; values that are not named share the rest evenly.
	// Without targets all values of nodes that the constraints allow have the same share.
	Targets []SpreadTarget `json:"targets,omitempty"`
	// MaxSkew, unless 0, makes it a demand: a task is not placed where its value would have more than MaxSkew tasks
	// more than the value with the fewest. It goes without Targets.
	MaxSkew int `json:"max_skew,omitempty"`
}

// SpreadTarget is the share of one value.
type SpreadTarget struct {
	Value string `json:"value"`
	// Percent is 0 to 100; the sum over all targets of a spread is 100 at most.
	Percent int `json:"percent"`
}

// Relation draws a task towards the tasks of other workloads, or keeps it away from them.
type Relation struct {
	// Labels are those of the services and jobs that are meant: all of them must be met. They may be of the task's own
	// owner.
	Labels Labels `json:"labels"`
	// Clusters are where those are. Default the task's own.
	Clusters []string `json:"clusters,omitempty"`
	// Attribute says how near: the same value of it. Default node.name, the same node.
	Attribute string `json:"attribute,omitempty"`
	// Away turns it around.
	Away bool `json:"away,omitempty"`
	// Required makes it a demand. A demand for Away holds both ways: a task of such labels is not placed beside this
	// one either.
	Required bool `json:"required,omitempty"`
	// Weight of a wish is 1 to MaxWeight. Default DefaultWeight.
	Weight int `json:"weight,omitempty"`
}

// Equal reports whether two relations say the same.
func (r Relation) Equal(o Relation) bool {
	return r.Attribute == o.Attribute && r.Away == o.Away && r.Required == o.Required && r.Weight == o.Weight &&
		slices.Equal(r.Clusters, o.Clusters) && maps.Equal(r.Labels, o.Labels)
}

// KeepsAway returns the relations that keep tasks of other labels from the side of one that is placed: those that are
// required, and away.
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
	// Most is how many tasks may have the same value. Default 1.
	Most int `json:"most,omitempty"`
}

// TaintEffect is what a taint does to tasks that do not tolerate it.
type TaintEffect string

// Effects of taints.
const (
	TaintNoSchedule TaintEffect = "no-schedule" // keeps new tasks away
	TaintAvoid      TaintEffect = "avoid"       // keeps them away where there is another node
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
	// Since is when the node got it; what a client sends here is ignored.
	Since time.Time `json:"since,omitzero"`
}

// Toleration lets a task onto nodes with a taint. One without a Key tolerates every taint, one without a Value every
// value of its key, and one without an Effect every effect.
type Toleration struct {
	Key    string      `json:"key,omitempty"`
	Value  string      `json:"value,omitempty"`
	Effect TaintEffect `json:"effect,omitempty"`
	// For, unless 0, is for how long a task that runs on a node stays there once that has the taint: of effect evict
	// alone. It lets no task onto the node.
	For Duration `json:"for,omitempty"`
}

// Tolerates reports whether the toleration lets a task onto nodes with the taint, and lets it stay there.
func (t Toleration) Tolerates(taint Taint) bool { return t.For == 0 && t.about(taint) }

func (t Toleration) about(taint Taint) bool {
	return (t.Key == "" || t.Key == taint.Key) && (t.Value == "" || t.Value == taint.Value) &&
		(t.Effect == "" || t.Effect == taint.effect())
}

// Evicts returns the taint that is the first to move a task away that stands on a node with such taints, and until when
// it may stay: of several tolerations for a taint the longest counts. ok is false where none does.
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

// DeviceRequest is what a task asks for of one type of device.
type DeviceRequest struct {
	Type string `json:"type,omitempty"` // default DefaultDeviceType
	// Models are those that will do; empty: any.
	Models []string `json:"models,omitempty"`
	// Count is how many whole devices, 1 to MaxDevices. Default 1. With a Share it is 1.
	Count int `json:"count,omitempty"`
	// Share, unless 0, is the part of one device in thousandths, 1 to WholeDevice; others get the rest.
	Share int `json:"share,omitempty"`
	// Memory is what each device must have, or with a Share what of its memory is used up.
	Memory Bytes `json:"memory,omitempty"`
	// OneNuma says that all devices that a task asks for in this way are of one NUMA node. It follows from
	// Resources.CPUPinning; those of which it is not known where they are attached will do with any.
	OneNuma bool `json:"-"`
}

// DeviceUse is what a task holds of one device of its node.
type DeviceUse struct {
	ID string `json:"id"`
	// Share is in thousandths, WholeDevice for all of it. Memory is what of its memory is used up; a whole device has
	// none left for others, whatever it says.
	Share  int   `json:"share"`
	Memory Bytes `json:"memory,omitempty"`
}

// Gang is tasks of a step that run all at the same time or not at all.
type Gang struct {
	// Deadline is for how long its tasks wait for places together before the step fails; 0: for ever.
	Deadline Duration `json:"deadline,omitempty"`
}
