package cluster

import "slices"

// Isolation says how far a program is kept apart from its node where no image does that. Containers of images always
// are.
type Isolation string

// Kinds of isolation.
const (
	// IsolationNone needs a permission: a program sees the files, processes and users of its node, without capabilities
	// that its container does not list.
	IsolationNone Isolation = "none"
	// IsolationRequired gives a program processes, devices, memory between processes and temporary files of its own,
	// and lets it write to nothing else but its folder, its volumes and its tmpfs. Only nodes that can do this take the
	// task.
	IsolationRequired Isolation = "required"
)

// Values returns every Isolation, in the order of the constants.
func (Isolation) Values() []Isolation {
	return []Isolation{IsolationNone, IsolationRequired}
}

// LabelIsolation is the label that nodes have for the scheduler which of their programs can be kept apart: those of
// images, plain ones, or both.
const LabelIsolation = "berth.isolation"

// Values of LabelIsolation.
const (
	IsolatesImages = "images"
	IsolatesPlain  = "plain"
	IsolatesAll    = "all"
)

// MaxNoIsolation bounds what an ExecutorFact says is lacking, in bytes.
const MaxNoIsolation = 1000

// imageIsolator is the executor that keeps all that it runs apart, whatever its version.
const imageIsolator = "containerd"

// Isolated reports whether a container of the definition demands to be kept apart.
func (d *TaskDefinition) Isolated() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return c.Isolation == IsolationRequired })
}

// Offers returns the labels that the scheduler knows a node by for what its agent told that it does.
func (f *Facts) Offers() Labels {
	all := Labels{}
	if f.Secrets {
		all[LabelSecrets] = "true"
	}
	if f.Artifacts {
		all[LabelArtifacts] = "true"
	}
	images := slices.ContainsFunc(f.Executors, func(e ExecutorFact) bool { return e.Name == imageIsolator })
	plain := slices.ContainsFunc(f.Executors, func(e ExecutorFact) bool { return e.Isolation != "" })
	switch {
	case images && plain:
		all[LabelIsolation] = IsolatesAll
	case images:
		all[LabelIsolation] = IsolatesImages
	case plain:
		all[LabelIsolation] = IsolatesPlain
	}
	return all
}

// Needs returns the constraints that follow from what a definition's containers ask of an agent.
func (d *TaskDefinition) Needs() (all []Constraint) {
	if d.HandsOut() {
		all = append(all, Constraint{Attribute: "label." + LabelSecrets, Op: OpEqual, Value: "true"})
	}
	if d.Follows() {
		all = append(all, Constraint{Attribute: "label." + LabelServices, Op: OpEqual, Value: "true"})
	}
	if d.Fetches() {
		all = append(all, Constraint{Attribute: "label." + LabelArtifacts, Op: OpEqual, Value: "true"})
	}
	if d.Isolated() {
		able := []string{IsolatesPlain, IsolatesAll}
		if len(d.Images()) > 0 { // without containerd its command runs as a plain program
			able = append(able, IsolatesImages)
		}
		all = append(all, Constraint{Attribute: "label." + LabelIsolation, Op: OpIn, Values: able})
	}
	return append(all, d.folderConstraints()...)
}
