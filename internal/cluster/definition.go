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
	// Version is 1 or more; in a manifest 0 stands for the newest at the time of the write, which
	// the API server fills in.
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

// TaskDefinition is an immutable, versioned description of what a task runs. A version is
// written once; to change it is to write the next. Writer: the user.
type TaskDefinition struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Deleted says that a deletion of the version is under way, which takes no new references. The API server sets it
	// where a user deletes the version, the leader where the version is old and unused. What a client sends here is
	// ignored.
	Deleted bool   `json:"deleted,omitempty"`
	Labels  Labels `json:"labels,omitempty"`
	// Containers start in the order of their After fields, those without in the order of the
	// list; init containers first, each after the one before has ended well.
	Containers []Container `json:"containers"`
	// Ports are what the task listens on. On the host network each is a port of the node.
	Ports []Port `json:"ports,omitempty"`
	// Volumes are what the node lends to the task.
	Volumes []Volume `json:"volumes,omitempty"`
	Checks  []Check  `json:"checks,omitempty"`
	Restart Restart  `json:"restart,omitzero"`
	// Grace is how long a task may take to end after TERM before it gets KILL. Default 10 s.
	Grace Duration `json:"grace,omitempty"`
	// ShutdownDelay is waited before TERM where the stop could as well wait (a rollout, a drain, fewer tasks): the task
	// has left the lists of healthy addresses by then, and those who use it have time to see that. Default 1 s for
	// definitions with ports of services, else 0.
	ShutdownDelay *Duration `json:"shutdown_delay,omitempty"`
	// MinHealthyTime is how long a task without checks runs before it counts as
	// healthy (P4.7). Default 1 s.
	MinHealthyTime Duration `json:"min_healthy_time,omitempty"`
	// Disk is what the task may write outside of its volumes, logs included.
	Disk Bytes `json:"disk,omitempty"`
	// Network says what network the containers see, all the same one: "host" (default), "bridge" or "none".
	Network NetworkMode `json:"network,omitempty"`
}

// Lingers returns how long a task of the definition goes on after it was permitted to stop.
func (d *TaskDefinition) Lingers() time.Duration {
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
	// Digest is which image the name in Image stood for when the version was written, "sha256:…": all its tasks run
	// that one. Writer: the server that takes the definition, where a node could ask the registry, or the user.
	Digest string `json:"digest,omitempty"`
	// PullSecret names the secret of the type registry that the image is fetched with. Without it one of the cluster
	// for the image's registry is used, where there is one.
	PullSecret string `json:"pull_secret,omitempty"`
	// Command replaces the image's entry point and arguments; Args only its arguments. $(NAME) in either
	// is replaced from the container's environment.
	Command []string          `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// User is "uid", "uid:gid", a name, or "name:group", known to the image, or without one to the node. A name without
	// a group brings all groups of that user. Without it a program of an image is the image's user, another one nobody,
	// unless the node's operator said otherwise.
	User string `json:"user,omitempty"`
	// Files are written before the container starts, read-only for it.
	Files  []File  `json:"files,omitempty"`
	Mounts []Mount `json:"mounts,omitempty"`
	// Secrets are values of the task's cluster that the container is handed in memory.
	Secrets []SecretUse `json:"secrets,omitempty"`
	Tmpfs   []Tmpfs     `json:"tmpfs,omitempty"`
	// Services are those that the container uses. It is started once they have healthy tasks, and may be told their
	// addresses.
	Services []ServiceUse `json:"services,omitempty"`
	// Artifacts are files and archives that the agent fetches before the container is made.
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// ReadOnlyRoot mounts the image without write access.
	ReadOnlyRoot bool `json:"read_only_root,omitempty"`
	// Capabilities are kept; all others are dropped. Names are without "CAP_".
	Capabilities []string  `json:"capabilities,omitempty"`
	Resources    Resources `json:"resources,omitzero"`
	// Isolation says how far a program without an image is kept apart from its node: "none" or "required". Without it
	// the node's agent decides: required, unless its operator said otherwise.
	Isolation Isolation `json:"isolation,omitempty"`
	// Init containers run to success, one after the other, before all others.
	Init bool `json:"init,omitempty"`
	// Optional containers may end without ending the task; the others are essential: when one ends,
	// so does the task.
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

// Resources are what a container may use and what is reserved for it.
type Resources struct {
	CPU    MilliCPU `json:"cpu,omitempty"`
	Memory Bytes    `json:"memory,omitempty"`
	// CPULimit, unless 0, is the most CPU time the container gets; without it CPU is a share.
	CPULimit MilliCPU `json:"cpu_limit,omitempty"`
	// Pids, unless 0, is the most processes and threads that the container has at a time.
	Pids int `json:"pids,omitempty"`
	// CPUPinning says whether the container has CPUs to itself: CPU is whole ones then.
	CPUPinning Pinning `json:"cpu_pinning,omitempty"`
	// Devices are what the container holds of its node's. No other task gets them, but for the rest of those it has a
	// share of.
	Devices []DeviceRequest `json:"devices,omitempty"`
}

// Pinning says which CPUs of its node a container runs on.
type Pinning string

// Kinds of pinning. Only nodes whose agent offers cores take containers that are pinned.
const (
	PinNone  Pinning = "none"  // those that no container has to itself; the default
	PinCores Pinning = "cores" // as many whole ones as its CPU, on which no other container of the node runs
	// the same, all of one NUMA node, with memory of that node, and devices of it where that is known
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
	// To is the number that the program listens on in a network of its own (bridge), where the port's number on the
	// node leads; default the number on the node.
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
	// Pin keeps the owner's tasks with their data: once nodes have the volume they are placed on those only. It goes
	// without Host and HostVolume.
	Pin bool `json:"pin,omitempty"`
	// Sticky gives each task of the owner, by its index, a volume of its own, which its replacements find: they are
	// placed on the node that has it where that can be. It goes without Host and HostVolume.
	Sticky bool `json:"sticky,omitempty"`
}

// Mount shows a volume inside a container.
type Mount struct {
	Volume   string `json:"volume"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Tmpfs is memory shown as a directory.
type Tmpfs struct {
	Path string `json:"path"`
	Size Bytes  `json:"size,omitempty"` // default 64 MiB
}

// File is text that the manifest carries into a container.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	// Mode is an octal file mode such as "0644", the default.
	Mode string `json:"mode,omitempty"`
	// Template says that Content is a template: the node makes the file's text from it, with the addresses of services,
	// and replaces the file when the text is another. Its folder is covered: it holds files of the container alone.
	Template bool `json:"template,omitempty"`
	// OnChange is what follows when the text of a template is another. Default restart, for init containers noop.
	OnChange Change `json:"on_change,omitempty"`
	// Signal is sent with on_change signal. Default "HUP".
	Signal string `json:"signal,omitempty"`
}

// RestartMode says which ends are followed by a restart in place.
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
	// Mode defaults to always for services and never for jobs.
	Mode RestartMode `json:"mode,omitempty"`
	// Limit is how many restarts may happen within Window; one more and the attempt has failed. Default 5.
	Limit  int      `json:"limit,omitempty"`
	Window Duration `json:"window,omitempty"` // default 10 m
	// Delay is waited before the first restart, doubled for each further one up to MaxDelay.
	// A task that ran longer than Window starts anew.
	Delay    Duration `json:"delay,omitempty"`     // default 1 s
	MaxDelay Duration `json:"max_delay,omitempty"` // default 1 m
}

// Demand is what a whole task asks of a node.
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

// Demand returns what a task of this definition reserves: the sum of its long-running containers, or
// the largest init container where that is more.
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
