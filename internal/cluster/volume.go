package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of the folders of a node.
const (
	MaxHostVolumes = 100 // that a node declares
	MaxHostPaths   = 100 // that a node lets tasks name
)

// FolderFacts lists a node's folders that tasks may use, and its copies of sticky volumes.
type FolderFacts struct {
	// HostVolumes are the folders that the operator declared and that are there, ordered by name.
	HostVolumes []HostVolume `json:"host_volumes,omitempty"`
	// Paths are the folders below which a volume may name its `host`, "/" for anywhere and none for nowhere; ordered.
	Paths []string `json:"paths,omitempty"`
	// Sticky are the copies of volumes that stick to a task, ordered by key.
	Sticky []StickyCopy `json:"sticky,omitempty"`
}

// HostVolume is a folder that a node declares by a name.
type HostVolume struct {
	Name     string `json:"name"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// StickyCopy says that a node has data of a sticky volume.
type StickyCopy struct {
	Key string `json:"key"` // see VolumeKey
	// Placed is when the control plane placed the attempt that last had it here, by the clock of the leader of then.
	Placed time.Time `json:"placed"`
	// Incarnation and Plan are those of the plan record that placed the volume's task, which never go back.
	Incarnation uint64 `json:"incarnation,omitempty"`
	Plan        uint64 `json:"plan,omitempty"`
}

// NewestCopies orders copies of one volume, the newest first, and keeps the order of equal ones. Plan numbers order
// them, so a leader with a wrong clock does no harm.
func NewestCopies[T any](all []T, of func(*T) *StickyCopy) {
	slices.SortStableFunc(all, func(x, y T) int {
		a, b := of(&x), of(&y)
		return cmp.Or(cmp.Compare(b.Incarnation, a.Incarnation), cmp.Compare(b.Plan, a.Plan))
	})
}

// StorageUse is the disk usage of a task's volumes.
type StorageUse struct {
	Volumes []VolumeUse `json:"volumes"`
}

// VolumeUse is the disk usage of one volume.
type VolumeUse struct {
	Name string `json:"name"`
	// Used is the size of its files, as counted by At; 0 before the first count.
	Used Bytes `json:"used"`
	// Size and Free are those of the file system, or of the quota of the volume's folder.
	Size Bytes     `json:"size"`
	Free Bytes     `json:"free"`
	At   time.Time `json:"at,omitzero"`
}

// VolumeKey names a volume that agents keep, such as "default/db/data".
func VolumeKey(owner OwnerRef, volume string) string {
	return owner.Cluster + "/" + owner.Name + "/" + volume
}

// Kept reports whether the agent keeps a folder for the volume.
func (v *Volume) Kept() bool { return v.Host == "" && v.HostVolume == "" }

// Folder returns the name of the agent's folder for the volume of a task. It is the volume's name, or for a sticky
// volume the name with the task's index: "data.0", or for a job "data.STEP.0". No volume can have such a name.
func (v *Volume) Folder(task TaskID) string {
	if !v.Sticky {
		return v.Name
	}
	parts, _ := task.Parts()
	name := v.Name
	if parts.Step != "" {
		name += "." + parts.Step
	}
	return name + "." + strconv.Itoa(parts.Index)
}

// PinnedVolumes returns the keys of the volumes that pin an owner's task, ordered.
func (d *TaskDefinition) PinnedVolumes(owner OwnerRef, task TaskID) []string {
	return d.volumeKeys(owner, task, func(v *Volume) bool { return v.Pin })
}

// StickyVolumes returns the keys of the sticky volumes of an owner's task, ordered.
func (d *TaskDefinition) StickyVolumes(owner OwnerRef, task TaskID) []string {
	return d.volumeKeys(owner, task, func(v *Volume) bool { return v.Sticky })
}

func (d *TaskDefinition) volumeKeys(owner OwnerRef, task TaskID, which func(*Volume) bool) (keys []string) {
	for i := range d.Volumes {
		if v := &d.Volumes[i]; which(v) {
			keys = append(keys, VolumeKey(owner, v.Folder(task)))
		}
	}
	slices.Sort(keys)
	return keys
}

// Sticks reports whether a volume of the definition sticks to its task.
func (d *TaskDefinition) Sticks() bool {
	return slices.ContainsFunc(d.Volumes, func(v Volume) bool { return v.Sticky })
}

// Writes reports whether a container of the definition may write to a volume.
func (d *TaskDefinition) Writes(volume string) bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool {
		return slices.ContainsFunc(c.Mounts, func(m Mount) bool { return m.Volume == volume && !m.ReadOnly })
	})
}

// Attributes of the constraints that follow from a definition's volumes. No user can name them.
const (
	// Value is its name; with OpExists any suffices, with OpEqual one that can be written
	AttributeHostVolume = "host_volume"
	AttributeHostPath   = "host_path" // Value is a path that the node lets tasks name
)

// folderConstraints returns the constraints of the definition's volumes and artifacts on a node's folders, in their
// order.
func (d *TaskDefinition) folderConstraints() (all []Constraint) {
	for i := range d.Volumes {
		switch v := &d.Volumes[i]; {
		case v.HostVolume != "":
			all = append(all, Constraint{Attribute: AttributeHostVolume, Op: OpExists, Value: v.HostVolume})
			if d.Writes(v.Name) {
				all = append(all, Constraint{Attribute: AttributeHostVolume, Op: OpEqual, Value: v.HostVolume})
			}
		case v.Host != "":
			all = append(all, Constraint{Attribute: AttributeHostPath, Op: OpEqual, Value: v.Host})
		}
	}
	for i := range d.Containers {
		for _, path := range d.Containers[i].hostFiles() {
			all = append(all, Constraint{Attribute: AttributeHostPath, Op: OpEqual, Value: path})
		}
	}
	return all
}

// LacksFolder returns why a node with these facts does not meet a constraint of folderConstraints, or "" if it does; ok
// is false for any other constraint. The sentence is the same for all nodes.
func LacksFolder(c Constraint, f *FolderFacts) (lacks string, ok bool) {
	switch c.Attribute {
	case AttributeHostVolume:
		declared, writable := f.hostVolume(c.Value)
		switch {
		case c.Op == OpExists && !declared:
			return fmt.Sprintf("it declares no host volume %q: start its agent with --host-volume %s=PATH", c.Value,
				c.Value), true
		case c.Op == OpEqual && !writable:
			return fmt.Sprintf("its host volume %q is read-only and the task mounts it to write: mount it "+
				"with read_only", c.Value), true
		}
		return "", true
	case AttributeHostPath:
		if f != nil && !PathWithin(c.Value, f.Paths) {
			return fmt.Sprintf("its agent does not share the path %s with tasks: declare it there with "+
				"--host-volume, or allow it with --host-path", c.Value), true
		}
		return "", true
	}
	return "", false
}

// FolderFaults returns the volumes, images and artifacts of the definition that a node with these facts does not share.
func (d *TaskDefinition) FolderFaults(f *FolderFacts) (faults Faults) {
	lacks := func(path string, op ConstraintOp, attribute, value string) {
		if why, _ := LacksFolder(Constraint{Attribute: attribute, Op: op, Value: value}, f); why != "" {
			faults = append(faults, Fault{Path: path, Message: why})
		}
	}
	for i := range d.Volumes {
		switch v := &d.Volumes[i]; {
		case v.HostVolume != "":
			op := OpExists
			if declared, _ := f.hostVolume(v.HostVolume); declared && d.Writes(v.Name) {
				op = OpEqual
			}
			lacks(fmt.Sprintf("volumes[%d].host_volume", i), op, AttributeHostVolume, v.HostVolume)
		case v.Host != "":
			lacks(fmt.Sprintf("volumes[%d].host", i), OpEqual, AttributeHostPath, v.Host)
		}
	}
	for i := range d.Containers {
		c := &d.Containers[i]
		if path := HostFile(c.ImageSource.Source); path != "" {
			lacks(fmt.Sprintf("containers[%d].image_source.source", i), OpEqual, AttributeHostPath, path)
		}
		for j := range c.Artifacts {
			if path := HostFile(c.Artifacts[j].Source); path != "" {
				lacks(fmt.Sprintf("containers[%d].artifacts[%d].source", i, j), OpEqual, AttributeHostPath, path)
			}
		}
	}
	return faults
}

func (f *FolderFacts) hostVolume(name string) (declared, writable bool) {
	if f == nil {
		return false, false
	}
	i, found := slices.BinarySearchFunc(f.HostVolumes, name, func(v HostVolume, name string) int {
		return cmp.Compare(v.Name, name)
	})
	return found, found && !f.HostVolumes[i].ReadOnly
}

// SameForPlacement reports whether two nodes lend the same.
func (f *FolderFacts) SameForPlacement(g *FolderFacts) bool {
	if f == nil || g == nil {
		return f == g
	}
	return slices.Equal(f.HostVolumes, g.HostVolumes) && slices.Equal(f.Paths, g.Paths)
}

// PathWithin reports whether a path in its shortest form is one of the folders or below one, as it is written.
func PathWithin(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return folder == "/" || path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// CleanPath reports whether a path is absolute and in its shortest form, without "." and "..".
func CleanPath(path string) bool { return cleanPath(path) }

// validateKind checks the fields that exclude each other.
func (v *Volume) validateKind(k check) {
	if v.HostVolume != "" {
		k.at("host_volume").name(v.HostVolume)
		k.at("host_volume").must(v.Host == "", "%q and host %q are both given: want one of them", clip(v.HostVolume),
			clip(v.Host))
	}
	place := cmp.Or(v.Host, v.HostVolume)
	k.at("pin").must(!v.Pin || v.Kept(),
		"is for volumes that the agent keeps: it does not know whose data is in %s, so say with a "+
			"constraint which nodes have it", clip(place))
	k.at("sticky").must(!v.Sticky || v.Kept(),
		"is for volumes that the agent keeps: %s is the same folder for all tasks of its node", clip(place))
}

func (f *FolderFacts) validate(k check) {
	if f == nil {
		return
	}
	k.at("host_volumes").must(len(f.HostVolumes) <= MaxHostVolumes, "holds %d volumes, at most %d are allowed",
		len(f.HostVolumes), MaxHostVolumes)
	for i := range f.HostVolumes {
		k.index("host_volumes", i).at("name").name(f.HostVolumes[i].Name)
	}
	k.at("host_volumes").must(slices.IsSortedFunc(f.HostVolumes, func(a, b HostVolume) int {
		return cmp.Compare(a.Name, b.Name)
	}), "want them in the order of their names")
	k.at("paths").must(len(f.Paths) <= MaxHostPaths, "holds %d paths, at most %d are allowed", len(f.Paths),
		MaxHostPaths)
	for i, path := range f.Paths {
		k.index("paths", i).absolute(path)
	}
	k.at("sticky").must(len(f.Sticky) <= MaxNodeVolumes, "holds %d volumes, at most %d are allowed", len(f.Sticky),
		MaxNodeVolumes)
}

// notable reports whether what volumes take differs by so much that it is worth a report.
func (s *StorageUse) notable(reported *StorageUse) bool {
	if s == nil || reported == nil {
		return s != reported
	}
	return s != reported && !slices.EqualFunc(s.Volumes, reported.Volumes, func(a, b VolumeUse) bool {
		return a.Name == b.Name && a.At.IsZero() == b.At.IsZero() &&
			!notable(float64(a.Used), float64(b.Used), float64(MiB)) &&
			!notable(float64(a.Size), float64(b.Size), float64(MiB)) &&
			!notable(float64(a.Free), float64(b.Free), float64(GiB))
	})
}
