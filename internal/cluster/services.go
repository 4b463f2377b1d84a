package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Change is a running task's reaction to new addresses of a service that a container follows. In every case files are
// replaced in place, each atomically, and containers that start from then on get the new addresses.
type Change string

// Ways to take in other addresses.
const (
	// ChangeRestart restarts the task in place. Tasks of jobs run on.
	ChangeRestart Change = "restart"
	// ChangeSignal sends the container a signal once its file was replaced.
	ChangeSignal Change = "signal"
	// ChangeNoop does nothing: the program watches the file itself.
	ChangeNoop Change = "noop"
)

// Values returns every Change, in the order of the constants.
func (Change) Values() []Change {
	return []Change{ChangeRestart, ChangeSignal, ChangeNoop}
}

// DefaultChangeSignal is the signal of ChangeSignal.
const DefaultChangeSignal = "HUP"

// MaxServiceUses limits the services of a container, and the pairs of service and port in its templates.
const MaxServiceUses = 64

// LabelServices is the scheduler's label for nodes whose agents give containers the addresses of services.
const LabelServices = "berth.services"

// ServiceUse names a service that a container uses. The container does not start before the service has a healthy task.
type ServiceUse struct {
	// Service is the name of the service that must have a healthy task first.
	Service string `json:"service"`
	// Cluster is the service's, by default that of the task.
	Cluster string `json:"cluster,omitempty"`
	// Port is the name of the service's port whose addresses Env holds. Without it any healthy task counts.
	Port string `json:"port,omitempty"`
	// Env is the name of a variable that holds the addresses of the healthy tasks, as "host:port,host:port", ordered by
	// task.
	Env string `json:"env,omitempty"`
	// OnChange is the reaction to a change of the variable. Default restart, for init containers noop.
	OnChange Change `json:"on_change,omitempty"`
	// Optional containers start without a healthy task of the service; the variable is empty then, and so is the list
	// in templates.
	Optional bool `json:"optional,omitempty"`
}

// ServiceName names a service from within a task: an empty Cluster is the task's own.
type ServiceName struct{ Cluster, Service string }

// String returns "service", or "service.cluster".
func (n ServiceName) String() string {
	if n.Cluster == "" {
		return n.Service
	}
	return n.Service + "." + n.Cluster
}

// In returns the name as seen from everywhere.
func (n ServiceName) In(own string) ServiceName {
	return ServiceName{cmp.Or(n.Cluster, own), n.Service}
}

func compareNames(a, b ServiceName) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Service, b.Service))
}

// ServicePort names a port of a service as a task refers to it. Without a Port it names the service alone.
type ServicePort struct {
	ServiceName
	Port string
}

// Need is a service whose addresses a container needs before it starts.
type Need struct {
	ServicePort
	// Optional says that the container starts without them, too.
	Optional bool
}

// Needs returns the services that a container needs, ordered, each once, from its list and from its templates. Invalid
// templates are left out; Validate reports them.
func (c *Container) Needs() (needs []Need) {
	add := func(p ServicePort) {
		if !slices.ContainsFunc(needs, func(n Need) bool { return n.ServicePort == p }) {
			needs = append(needs, Need{p, c.uses(p.ServiceName).Optional})
		}
	}
	for i := range c.Services {
		add(c.Services[i].port())
	}
	for i := range c.Files {
		if c.Files[i].Template {
			t, _ := ParseTemplate(c.Files[i].Content)
			for _, p := range t.services {
				add(p)
			}
		}
	}
	slices.SortFunc(needs, func(a, b Need) int {
		return cmp.Or(compareNames(a.ServiceName, b.ServiceName), cmp.Compare(a.Port, b.Port))
	})
	return needs
}

// uses returns the entry of the container's list for a service.
func (c *Container) uses(n ServiceName) ServiceUse {
	for _, u := range c.Services {
		if u.port().ServiceName == n {
			return u
		}
	}
	return ServiceUse{}
}

func (u *ServiceUse) port() ServicePort {
	return ServicePort{ServiceName{u.Cluster, u.Service}, u.Port}
}

// FollowsServices reports whether the container gets addresses of services, or has a file made from a template. Its
// agent must then support it.
func (c *Container) FollowsServices() bool {
	return len(c.Services) > 0 || slices.ContainsFunc(c.Files, func(f File) bool { return f.Template })
}

// FollowsServices reports whether a container of the definition does.
func (d *TaskDefinition) FollowsServices() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return c.FollowsServices() })
}

// Services returns the services that tasks of the definition in a cluster use, ordered, each once.
func (d *TaskDefinition) Services(own string) (names []ServiceName) {
	for i := range d.Containers {
		for _, n := range d.Containers[i].Needs() {
			names = append(names, n.In(own))
		}
	}
	slices.SortFunc(names, compareNames)
	return slices.Compact(names)
}

// TemplateFolders returns the folders of the container's files made from templates, ordered, each once. The files hide
// the rest of such a folder.
func (c *Container) TemplateFolders() (folders []string) {
	for i := range c.Files {
		if f := &c.Files[i]; f.Template && cleanPath(f.Path) {
			folders = append(folders, folderOf(f.Path))
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// InFolder returns the index of a file's folder in TemplateFolders, or -1.
func (f *File) InFolder(folders []string) int { return slices.Index(folders, folderOf(f.Path)) }

func (c *Container) serviceDefaults() {
	usual := ChangeRestart
	if c.Init {
		usual = ChangeNoop
	}
	for i := range c.Services {
		if u := &c.Services[i]; u.Env != "" {
			setDefault(&u.OnChange, usual)
		}
	}
	for i := range c.Files {
		f := &c.Files[i]
		if f.Template {
			setDefault(&f.OnChange, usual)
		}
		if f.OnChange == ChangeSignal {
			setDefault(&f.Signal, DefaultChangeSignal)
		}
	}
}

// validateServices checks the container's services and templates.
func (c *Container) validateServices(k check, d *TaskDefinition) {
	uses := bounded(k.at("services"), c.Services, MaxServiceUses, "services")
	taken := map[string]bool{}
	for i := range uses {
		uses[i].validate(k.index("services", i), c, d, taken)
		for j := range uses[:i] {
			a, b := &uses[i], &uses[j]
			k.index("services", i).at("optional").must(a.port().ServiceName != b.port().ServiceName ||
				a.Optional == b.Optional,
				"differs from services[%d]: all entries of a service need the same value", j)
		}
	}
	for i := range c.Files {
		c.Files[i].validateTemplate(k.index("files", i), c, d)
	}
	c.validateTemplateFolders(k)
	k.at("files").must(len(c.Needs()) <= MaxServiceUses,
		"use %d ports of services together with services, at most %d are allowed", len(c.Needs()), MaxServiceUses)
}

func (u *ServiceUse) validate(at check, c *Container, d *TaskDefinition, taken map[string]bool) {
	at.at("service").name(u.Service)
	if u.Cluster != "" {
		at.at("cluster").name(u.Cluster)
	}
	if u.Port != "" {
		at.at("port").name(u.Port)
	}
	if u.Env == "" {
		at.at("on_change").must(u.OnChange == "",
			"is for entries with env: files made from templates have their own on_change")
		return
	}
	at.at("port").must(u.Port != "", "is missing: want the name of the port of %s whose addresses %s is to hold",
		clip(u.Service), clip(u.Env))
	only := Container{Env: map[string]string{u.Env: ""}}
	name := newCheck()
	only.validateEnv(name, d)
	for _, f := range *name.faults {
		at.at("env").fault("%s", f.Message)
	}
	_, plain := c.Env[u.Env]
	secret := slices.ContainsFunc(c.Secrets, func(s SecretUse) bool { return s.Env == u.Env })
	at.at("env").must(!plain && !secret && !taken[u.Env],
		"%q is set already, by env, for a secret or for another service", clip(u.Env))
	taken[u.Env] = true
	if u.OnChange == ChangeSignal {
		at.at("on_change").fault(
			"cannot be %q: the variables of a running program cannot change; want restart or noop, or a "+
				"file made from a template", ChangeSignal)
		return
	}
	c.validateChange(at.at("on_change"), u.OnChange)
}

func (c *Container) validateChange(at check, change Change) {
	oneOf(at, change)
	at.must(!c.Init || change == ChangeNoop || change != ChangeRestart && change != ChangeSignal,
		"is %q, want noop: an init container has ended before anything changes", change)
}

func (f *File) validateTemplate(at check, c *Container, d *TaskDefinition) {
	if !f.Template {
		at.at("on_change").must(f.OnChange == "", "is for files with template: true only: others do not change")
		at.at("signal").must(f.Signal == "", "is for files with template: true only: others do not change")
		return
	}
	c.validateChange(at.at("on_change"), f.OnChange)
	if f.OnChange == ChangeSignal {
		at.at("signal").must(slices.Contains(secretSignals[:], f.Signal),
			"%q cannot be sent: want one of HUP, INT, USR1, USR2, WINCH and CONT", clip(f.Signal))
	} else {
		at.at("signal").must(f.Signal == "", "is for on_change %q only: leave it out", ChangeSignal)
	}
	t, faults := ParseTemplate(f.Content)
	for _, fault := range faults {
		at.at("content").fault("%s", fault.Message)
	}
	if len(faults) > 0 {
		return
	}
	for _, e := range t.env {
		switch {
		case slices.ContainsFunc(c.Secrets, func(s SecretUse) bool { return s.Env == e.name }):
			at.at("content").fault("line %d: %s is a secret, and files made from templates are on the "+
				"node's disk: pass it with secrets, as a file of its own or as the variable", e.line,
				clip(e.name))
		case !c.knowsVariable(e.name, d):
			at.at("content").fault("line %d: the container has no variable %q: want one of its env or "+
				"services, or one that Berth sets", e.line, clip(e.name))
		}
	}
	for _, fault := range t.try() {
		at.at("content").fault("%s", fault.Message)
	}
}

// knowsVariable reports whether templates of the container find a variable: those of an image or of devices they do
// not.
func (c *Container) knowsVariable(name string, d *TaskDefinition) bool {
	_, plain := c.Env[name]
	return plain || strings.HasPrefix(name, EnvBerth) ||
		slices.ContainsFunc(c.Services, func(u ServiceUse) bool { return u.Env == name }) ||
		slices.ContainsFunc(d.Ports, func(p Port) bool {
			return name == PortVariable(p.Name) || name == AddrVariable(p.Name)
		})
}

// validateTemplateFolders refuses folders that would hide something else, or be hidden.
func (c *Container) validateTemplateFolders(k check) {
	folders := c.TemplateFolders()
	clash := func(folder, other string) bool { return within(folder, other) || within(other, folder) }
	for n, folder := range folders {
		i := slices.IndexFunc(c.Files, func(f File) bool { return f.Template && folderOf(f.Path) == folder })
		at, path := k.index("files", i).at("path"), c.Files[i].Path
		if folder == "/" || folderOf(folder) == "/" {
			at.fault("%q would hide the folder %s: want a path in a folder of its own, such as \"/etc/%s/%s\"",
				clip(path), clip(folder),
				"app", clip(path[strings.LastIndexByte(path, '/')+1:]))
			continue
		}
		for _, other := range folders[n+1:] {
			at.must(!clash(folder, other),
				"%q and the folder %s overlap: want files made from templates side by side", clip(path),
				clip(other))
		}
		for j := range c.Files {
			other := &c.Files[j]
			at.must(other.InFolder(folders) >= 0 || !within(other.Path, folder),
				"%q hides the folder of %s (files[%d]): want both in one folder, or in folders that do "+
					"not overlap", clip(path), clip(other.Path), j)
		}
		for j := range c.Secrets {
			if s := &c.Secrets[j]; cleanPath(s.File) {
				at.must(!clash(folder, folderOf(s.File)),
					"%q and %s overlap: want a folder of its own", clip(path),
					"secrets["+strconv.Itoa(j)+"]")
			}
		}
		for j := range c.Mounts {
			at.must(!clash(folder, c.Mounts[j].Path),
				"%q and %s overlap: want a folder of its own", clip(path),
				"mounts["+strconv.Itoa(j)+"]")
		}
		for j := range c.Tmpfs {
			at.must(!clash(folder, c.Tmpfs[j].Path),
				"%q and %s overlap: want a folder of its own", clip(path),
				"tmpfs["+strconv.Itoa(j)+"]")
		}
	}
}
