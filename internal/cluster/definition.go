package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ref names a version of a task definition, as "web@3".
type Ref struct {
	Name string
	// Version is 1 or more. In a manifest 0 means the newest version at the time of the write; the API server fills it
	// in.
	Version int
}

// ParseRef reads "web@3", or "web" for the newest version.
func ParseRef(s string) (Ref, error) {
	name, version, found := strings.Cut(s, "@")
	if !ValidName(name) {
		return Ref{}, fmt.Errorf("%q is not a reference to a task definition: want name@version", clip(s))
	}
	if !found {
		return Ref{Name: name}, nil
	}
	n, err := strconv.Atoi(version)
	if err != nil || n < 1 {
		return Ref{}, fmt.Errorf("%q is not a reference to a task definition: the version is a number from 1 up",
			clip(s))
	}
	return Ref{name, n}, nil
}

// String returns "web@3", or "web" without a version.
func (r Ref) String() string {
	if r.Version == 0 {
		return r.Name
	}
	return r.Name + "@" + strconv.Itoa(r.Version)
}

// MarshalText writes "web@3".
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "web@3" or "web"; empty text gives the zero Ref.
func (r *Ref) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*r = Ref{}
		return nil
	}
	*r, err = ParseRef(string(b))
	return err
}

// TaskDefinition is an immutable, versioned description of what a task runs. A version is written once; a change is the
// next version. Writer: the user. It has a method for the validation and the defaults of each of its parts.
type TaskDefinition struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Deleted says that a deletion of the version is under way, which accepts no new references. The API server sets it
	// when a user deletes the version, the leader when the version is old and unused. A client's value is ignored.
	Deleted bool `json:"deleted,omitempty"`
	// Inline says that the server wrote the version from a template. The versions of a name are removed once nothing
	// uses them, if all of them are from templates. A client's value is ignored.
	Inline bool `json:"inline,omitempty"`
	// Unused is when the leader found that nothing names the version, where versions are removed by age. It is zero
	// again once something names the version, or a user writes it again. A client's value is ignored.
	Unused time.Time `json:"unused,omitzero"`
	Labels Labels    `json:"labels,omitempty"`
	// Containers start in the order of their After fields, containers without After in the order of the list. Init
	// containers run first, one after another, and each must succeed.
	Containers []Container `json:"containers"`
	// Ports are the ports on which the task listens. On the host network each is a port of the node.
	Ports []Port `json:"ports,omitempty"`
	// Volumes are the folders of the node that the task uses.
	Volumes []Volume `json:"volumes,omitempty"`
	Checks  []Check  `json:"checks,omitempty"`
	Restart Restart  `json:"restart,omitzero"`
	// Grace is the time between TERM and KILL, for all containers of the task together: 1 ms to 1 h, default 10 s. It
	// begins after ShutdownDelay.
	Grace Duration `json:"grace,omitempty"`
	// ShutdownDelay is the wait before TERM in a voluntary stop (rollout, drain, scaling down). The task has left the
	// lists of healthy addresses by then, so clients have time to leave it. Default 1 s for definitions with ports of
	// services, else 0.
	ShutdownDelay *Duration `json:"shutdown_delay,omitempty"`
	// MinHealthyTime is how long a task without checks runs before it counts as healthy (P4.7). Default 1 s.
	MinHealthyTime Duration `json:"min_healthy_time,omitempty"`
	// Disk is the space that the task may write outside of its volumes, logs included.
	Disk Bytes `json:"disk,omitempty"`
	// Network is the network of all containers: "host" (default), "bridge" or "none".
	Network NetworkMode `json:"network,omitempty"`
	// Discovery says where a healthy task is registered for programs outside of Berth.
	Discovery Discovery `json:"discovery,omitzero"`
}

// InlineDefinition is a task definition inside of a service, or of a step of a job or cron. Its name is optional: the
// default is the name of the service, or "<job>-<step>"; in other clusters than "default", "<cluster>-" precedes it. It
// has no version: the server counts the versions.
type InlineDefinition struct {
	TaskDefinition `optional:"name,version"`
}

// inlineName returns the default name of an inline definition in an owner; step is empty for a service.
func inlineName(cluster, owner, step string) string {
	name := owner
	if step != "" {
		name += "-" + step
	}
	if cluster != DefaultCluster {
		name = cluster + "-" + name
	}
	return name
}

// setDefaults fills in the fields that the user left out. It accepts nil.
func (d *InlineDefinition) setDefaults(name string) {
	if d != nil {
		setDefault(&d.Name, name)
		d.TaskDefinition.SetDefaults()
	}
}

// copied returns a copy whose defaults can be set without changing d. It accepts nil.
func (d *InlineDefinition) copied() *InlineDefinition {
	if d == nil {
		return nil
	}
	return &InlineDefinition{*d.TaskDefinition.copied()}
}

// Reference returns the reference to the newest version of the definition.
func (d *InlineDefinition) Reference() Ref { return Ref{Name: d.Name} }

// StopDelay returns how long a task of the definition runs on after it used its permit to stop.
func (d *TaskDefinition) StopDelay() time.Duration {
	switch {
	case d.ShutdownDelay != nil:
		return time.Duration(*d.ShutdownDelay)
	case len(d.Ports) > 0:
		return time.Duration(DefaultShutdownDelay)
	}
	return 0
}

// Ref returns the reference of this version.
func (d *TaskDefinition) Ref() Ref { return Ref{d.Name, d.Version} }

// Container is one process of a task.
type Container struct {
	Name string `json:"name"`
	// Image is a reference such as "registry.example/app:1" for executors that run images.
	Image string `json:"image,omitempty"`
	// Pull says when the image is fetched: "missing" (default), "always" or "never".
	Pull PullPolicy `json:"pull,omitempty"`
	// Digest is the digest of the image at the time of the write, "sha256:…"; all tasks of the version run it. Writer:
	// the server that takes the definition, if a node could ask the registry, or the user.
	Digest string `json:"digest,omitempty"`
	// ImageSource, unless empty, is where the image comes from instead of a registry. Image then names it in the
	// archive, and a node runs it for this source only.
	ImageSource ImageSource `json:"image_source,omitzero"`
	// PullSecret names the secret of type registry for the pull. The default is the cluster's secret for the image's
	// registry, if there is one.
	PullSecret string `json:"pull_secret,omitempty"`
	// Command replaces the image's entry point and arguments; Args only its arguments. $(NAME) in either
	// is replaced from the container's environment.
	Command []string          `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// User is "uid", "uid:gid", a name, or "name:group", known to the image, or without an image to the node. A name
	// without a group brings all groups of that user. The default is the image's user; for programs without an image it
	// is nobody, unless the node's operator chose another.
	User string `json:"user,omitempty"`
	// Files are written before the container starts, read-only for it.
	Files  []File  `json:"files,omitempty"`
	Mounts []Mount `json:"mounts,omitempty"`
	// Secrets are values of the task's cluster that the container is handed in memory.
	Secrets []SecretUse `json:"secrets,omitempty"`
	Tmpfs   []Tmpfs     `json:"tmpfs,omitempty"`
	// Services are the services that the container uses. It starts once they have healthy tasks, and may get their
	// addresses.
	Services []ServiceUse `json:"services,omitempty"`
	// Artifacts are files and archives that the agent fetches before the container is made.
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// ReadOnlyRoot mounts the image without write access.
	ReadOnlyRoot bool `json:"read_only_root,omitempty"`
	// Capabilities are kept; all others are dropped. Names are without "CAP_".
	Capabilities []string  `json:"capabilities,omitempty"`
	Resources    Resources `json:"resources,omitzero"`
	// Isolation separates a program without an image from its node: "none" or "required". By default the node's agent
	// decides: required, unless its operator chose otherwise.
	Isolation Isolation `json:"isolation,omitempty"`
	// Init containers run to success, one after the other, before all others.
	Init bool `json:"init,omitempty"`
	// Optional containers may end without ending the task. The end of an essential container ends the task.
	Optional bool `json:"optional,omitempty"`
	// After names containers of the task that must run before this one is started.
	After []string `json:"after,omitempty"`
}

// PullPolicy says when an image is fetched.
type PullPolicy string

// Pull policies.
const (
	PullMissing PullPolicy = "missing"
	PullAlways  PullPolicy = "always"
	PullNever   PullPolicy = "never"
)

// Values returns every PullPolicy, in the order of the constants.
func (PullPolicy) Values() []PullPolicy {
	return []PullPolicy{PullMissing, PullAlways, PullNever}
}

// Resources are the resource limits and reservations of a container.
type Resources struct {
	// CPU is the CPU time that is reserved on the node. The container may use more of it if others do not.
	CPU MilliCPU `json:"cpu,omitempty"`
	// Memory is reserved on the node. A container that uses more of it is killed.
	Memory Bytes `json:"memory,omitempty"`
	// CPULimit, unless 0, is the most CPU time that the container gets. Without it CPU is a share.
	CPULimit MilliCPU `json:"cpu_limit,omitempty"`
	// Pids, unless 0, limits the processes and threads of the container.
	Pids int `json:"pids,omitempty"`
	// OpenFiles, unless 0, is how many files each process of the container may have open. Without it the limit is that
	// of the node's executor.
	OpenFiles int `json:"open_files,omitempty"`
	// CPUPinning says whether the container has CPUs to itself. CPU then counts whole CPUs.
	CPUPinning Pinning `json:"cpu_pinning,omitempty"`
	// Devices are the devices of the node that the container reserves. No other task gets them, but for the remaining
	// share of a shared device.
	Devices []DeviceRequest `json:"devices,omitempty"`
}

// Pinning says which CPUs of its node a container runs on.
type Pinning string

// Kinds of pinning. Pinned containers run only on nodes whose agent offers cores.
const (
	PinNone  Pinning = "none"  // CPUs that no container has to itself; the default
	PinCores Pinning = "cores" // as many whole ones as its CPU, on which no other container of the node runs
	// cores of a single NUMA node, with memory of that node, and with devices of it where their NUMA node is known
	PinNuma Pinning = "numa"
)

// Values returns every Pinning, in the order of the constants.
func (Pinning) Values() []Pinning {
	return []Pinning{PinNone, PinCores, PinNuma}
}

// Port is one thing the task listens on.
type Port struct {
	Name string `json:"name"`
	// Port is the number on the node, or 0 to be assigned one from FirstAutoPort to LastAutoPort.
	Port int `json:"port,omitempty"`
	// To is the port number inside a bridge network, to which the node's port leads. Default the number on the node.
	To int `json:"to,omitempty"`
}

// Assigned ports.
const (
	FirstAutoPort = 30000
	LastAutoPort  = 32767
)

// Volume is a directory of the node that outlives the task.
type Volume struct {
	Name string `json:"name"`
	// Host is an absolute path on the node; without it the agent keeps a directory of its own for
	// the volume, by its name, the cluster's and the owner's.
	Host string `json:"host,omitempty"`
	// HostVolume is the name of a folder that nodes declare (berth agent --host-volume): tasks are placed on such nodes
	// only.
	HostVolume string `json:"host_volume,omitempty"`
	// Pin keeps the owner's tasks with their data: once a node has the volume, they run only on nodes that have it. It
	// excludes Host and HostVolume.
	Pin bool `json:"pin,omitempty"`
	// Sticky gives each task index of the owner a volume of its own. Replacements prefer the node that has it. It
	// excludes Host and HostVolume.
	Sticky bool `json:"sticky,omitempty"`
}

// Mount shows a volume inside a container.
type Mount struct {
	// Volume is the name of one of the volumes of the task definition.
	Volume string `json:"volume"`
	// Path is where the container finds the volume: an absolute path.
	Path string `json:"path"`
	// ReadOnly mounts the volume without write access.
	ReadOnly bool `json:"read_only,omitempty"`
}

// Tmpfs is memory shown as a directory.
type Tmpfs struct {
	// Path is where the container finds the folder: an absolute path. What is in it is lost at its end.
	Path string `json:"path"`
	// Size is the most that the folder holds, which counts as memory of the container. Default 64 MiB.
	Size Bytes `json:"size,omitempty"`
}

// File is text that the manifest carries into a container.
type File struct {
	// Path is where the container finds the file: an absolute path.
	Path string `json:"path"`
	// Content is the whole text of the file, or with Template the text that the node renders.
	Content string `json:"content"`
	// Mode is an octal file mode such as "0644", the default.
	Mode string `json:"mode,omitempty"`
	// Template says that Content is a template. The node renders the file from it, with the addresses of services, and
	// replaces the file when the result changes. The rendered files hide the rest of their folder.
	Template bool `json:"template,omitempty"`
	// OnChange is the reaction to a change of the rendered text. Default restart, for init containers noop.
	OnChange Change `json:"on_change,omitempty"`
	// Signal is the name of the signal that the program gets, with on_change signal. Default "HUP".
	Signal string `json:"signal,omitempty"`
}

// RestartMode says after which exits a task restarts in place.
type RestartMode string

// Restart modes.
const (
	RestartAlways    RestartMode = "always"
	RestartOnFailure RestartMode = "on-failure"
	RestartNever     RestartMode = "never"
)

// Values returns every RestartMode, in the order of the constants.
func (RestartMode) Values() []RestartMode {
	return []RestartMode{RestartAlways, RestartOnFailure, RestartNever}
}

// Restart is the agent's policy for a task that ended by itself: it is started again on the same
// node, in the same attempt, after a delay that doubles each time.
type Restart struct {
	// Mode says after which ends the task is started again. Default always for services, and never for jobs.
	Mode RestartMode `json:"mode,omitempty"`
	// Limit is the number of restarts within Window before the attempt fails. Default 5.
	Limit int `json:"limit,omitempty"`
	// Window is the span of time in which Limit counts restarts. Default 10 m.
	Window Duration `json:"window,omitempty"`
	// Delay is the wait before the first restart. It doubles with each further restart up to MaxDelay, and is reset
	// after a run longer than Window.
	Delay Duration `json:"delay,omitempty"` // default 1 s
	// MaxDelay is the longest wait before a restart. Default 1 m.
	MaxDelay Duration `json:"max_delay,omitempty"`
}

// Demand is what a whole task requires of a node.
type Demand struct {
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	Disk   Bytes    `json:"disk"`
}

// Add returns the sum.
func (d Demand) Add(e Demand) Demand {
	return Demand{d.CPU + e.CPU, d.Memory + e.Memory, d.Disk + e.Disk}
}

// Sub returns the difference.
func (d Demand) Sub(e Demand) Demand {
	return Demand{d.CPU - e.CPU, d.Memory - e.Memory, d.Disk - e.Disk}
}

// Images returns the images that its containers run from, by their normal names, ordered, each once.
func (d *TaskDefinition) Images() (all []string) {
	for i := range d.Containers {
		if d.Containers[i].Image != "" {
			all = append(all, NormalImage(d.Containers[i].Image))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// NeedsImage reports whether a container can only run from its image: it has one and no command.
func (d *TaskDefinition) NeedsImage() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return c.Image != "" && len(c.Command) == 0 })
}

// Demand returns the amount that a task of this definition reserves: the sum over its long-running containers, or the
// largest init container if that is more.
func (d *TaskDefinition) Demand() Demand {
	var main, first Demand
	for i := range d.Containers {
		r := Demand{CPU: d.Containers[i].Resources.CPU, Memory: d.Containers[i].Resources.Memory}
		if d.Containers[i].Init {
			first = Demand{CPU: max(first.CPU, r.CPU), Memory: max(first.Memory, r.Memory)}
		} else {
			main = main.Add(r)
		}
	}
	return Demand{max(main.CPU, first.CPU), max(main.Memory, first.Memory), d.Disk}
}

// Pinned reports whether two tasks of the definition cannot run on one node at the same
// time, or share what only one may write: a fixed port or a volume. A new version then replaces the old
// one only after it stopped.
func (d *TaskDefinition) Pinned() bool {
	for _, p := range d.Ports {
		if p.Port != 0 {
			return true
		}
	}
	return len(d.Volumes) > 0
}
