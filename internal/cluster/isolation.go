package cluster

import "slices"

// Isolation says how far a program without an image is separated from its node. Containers of images are always
// separated.
type Isolation string

// Kinds of isolation.
const (
	// IsolationNone needs a permission: a program sees the files, processes and users of its node, without capabilities
	// that its container does not list.
	IsolationNone Isolation = "none"
	// IsolationRequired gives a program its own processes, devices, shared memory and temporary files. It may write
	// only to its folder, its volumes and its tmpfs. Only nodes that support it take the task.
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

// imageIsolator is the executor that keeps all that it runs apart, whatever its version.
const imageIsolator = "containerd"

// Isolated reports whether a container of the definition demands to be kept apart.
func (d *TaskDefinition) Isolated() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return c.Isolation == IsolationRequired })
}

// CapabilityLabels returns the labels by which the scheduler knows the capabilities of the node's agent.
func (f *Facts) CapabilityLabels() Labels {
	all := Labels{}
	if f.Secrets {
		all[LabelSecrets] = "true"
	}
	if f.Artifacts {
		all[LabelArtifacts] = "true"
	}
	if f.ImageSources {
		all[LabelImageSources] = "true"
	}
	if f.ObjectStore {
		all[LabelObjectStore] = "true"
	}
	if f.Discovery.Name != "" {
		all[LabelDiscovery] = f.Discovery.Name
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

// Needs returns the constraints that follow from the features that a definition's containers use.
func (d *TaskDefinition) Needs() (all []Constraint) {
	if d.UsesSecrets() {
		all = append(all, Constraint{Attribute: "label." + LabelSecrets, Op: OpEqual, Value: "true"})
	}
	if d.FollowsServices() {
		all = append(all, Constraint{Attribute: "label." + LabelServices, Op: OpEqual, Value: "true"})
	}
	if d.UsesArtifacts() {
		all = append(all, Constraint{Attribute: "label." + LabelArtifacts, Op: OpEqual, Value: "true"})
	}
	if d.UsesImageSources() {
		all = append(all, Constraint{Attribute: "label." + LabelImageSources, Op: OpEqual, Value: "true"})
	}
	if d.UsesObjectStore() {
		all = append(all, Constraint{Attribute: "label." + LabelObjectStore, Op: OpEqual, Value: "true"})
	}
	if d.UsesConsul() {
		all = append(all, Constraint{Attribute: "label." + LabelDiscovery, Op: OpEqual, Value: DiscoveryConsul})
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
