package cluster

import (
	"encoding/json"
	"strings"
	"time"
)

// Bounds of a task definition.
const (
	MaxPorts   = 100
	MaxVolumes = 50
	MaxChecks  = 20
	// MaxDefinition is the size of a definition's JSON form in bytes, files included.
	MaxDefinition = 256 << 10

	MaxGrace         = Duration(time.Hour)
	MaxShutdownDelay = Duration(10 * time.Minute)
	MaxHealthyTime   = Duration(time.Hour)
	MinCheckInterval = Duration(100 * time.Millisecond)
	MaxCheckInterval = Duration(time.Hour)
	MinCheckTimeout  = Duration(10 * time.Millisecond)
	MaxFailAfter     = 100
	MaxRestartLimit  = 1000
	MaxRestartWindow = Duration(24 * time.Hour)
	MaxRestartDelay  = Duration(time.Hour)

	MaxDisk = 1024 * TiB
)

// Prefixes of the environment variables that Berth sets: for the number of each port, its address with the number, and
// other facts of the task. A manifest may set none of them.
const (
	EnvPort  = "PORT_"
	EnvAddr  = "ADDR_"
	EnvBerth = "BERTH_"
)

// PortVariable returns the name of the environment variable that holds the port's number.
func PortVariable(port string) string { return EnvPort + envName(port) }

// AddrVariable returns the name of the environment variable that holds the port's address, as "host:port".
func AddrVariable(port string) string { return EnvAddr + envName(port) }

func envName(port string) string { return strings.ToUpper(strings.ReplaceAll(port, "-", "_")) }

// Validate returns all faults of the definition as Faults, or nil. Omitted fields count with their defaults.
func (d *TaskDefinition) Validate() error {
	d = d.completed()
	k := newCheck()
	k.at("name").name(d.Name)
	k.at("version").must(d.Version >= 1, "is %d, want a number from 1 up", d.Version)
	d.validate(k)
	return k.err()
}

// validate checks an inline definition whose defaults are set.
func (d *InlineDefinition) validate(k check) {
	k.at("name").name(d.Name)
	k.at("version").must(d.Version == 0, "is %d, but the server counts the versions of a template: leave it out",
		d.Version)
	d.TaskDefinition.validate(k)
}

// validate checks everything but the name and the version of a definition whose defaults are set.
func (d *TaskDefinition) validate(k check) {
	k.at("labels").labels(d.Labels)
	d.validateContainers(k)
	d.validatePorts(k)
	d.validateNetwork(k)
	d.validateVolumes(k)
	d.validateChecks(k)
	d.validateDiscovery(k.at("discovery"))
	d.Restart.validate(k.at("restart"))
	k.at("grace").span(d.Grace, Duration(time.Millisecond), MaxGrace)
	if d.ShutdownDelay != nil {
		k.at("shutdown_delay").span(*d.ShutdownDelay, 0, MaxShutdownDelay)
	}
	k.at("min_healthy_time").span(d.MinHealthyTime, 0, MaxHealthyTime)
	k.at("disk").must(d.Disk >= 0 && d.Disk <= MaxDisk, "is %s, want a size from 0 to %s", d.Disk, MaxDisk)
	b, err := json.Marshal(d)
	k.must(err == nil && len(b) <= MaxDefinition,
		"is %d bytes long, at most %d are allowed: put large files into an image or a volume", len(b), MaxDefinition)
}

func (d *TaskDefinition) validatePorts(k check) {
	k.at("ports").must(len(d.Ports) <= MaxPorts, "holds %d ports, at most %d are allowed", len(d.Ports), MaxPorts)
	names := make([]string, len(d.Ports))
	numbers := make(map[int]int, len(d.Ports))
	for i, p := range d.Ports {
		names[i] = p.Name
		at := k.index("ports", i)
		at.at("name").name(p.Name)
		at.at("port").must(p.Port >= 0 && p.Port <= 65535,
			"is %d, want a number from 1 to 65535, or 0 for one to be assigned", p.Port)
		if first, ok := numbers[p.Port]; ok && p.Port != 0 {
			at.at("port").fault("%d is already the port of ports[%d]", p.Port, first)
		} else {
			numbers[p.Port] = i
		}
	}
	k.unique("ports", names)
}

func (d *TaskDefinition) validateVolumes(k check) {
	k.at("volumes").must(len(d.Volumes) <= MaxVolumes, "holds %d volumes, at most %d are allowed", len(d.Volumes),
		MaxVolumes)
	names := make([]string, len(d.Volumes))
	for i, v := range d.Volumes {
		names[i] = v.Name
		k.index("volumes", i).at("name").name(v.Name)
		if v.Host != "" {
			k.index("volumes", i).at("host").absolute(v.Host)
		}
		v.validateKind(k.index("volumes", i))
	}
	k.unique("volumes", names)
}

func (d *TaskDefinition) validateChecks(k check) {
	k.at("checks").must(len(d.Checks) <= MaxChecks, "holds %d checks, at most %d are allowed", len(d.Checks), MaxChecks)
	names := make([]string, len(d.Checks))
	for i := range d.Checks {
		names[i] = d.Checks[i].Name
		d.Checks[i].validate(k.index("checks", i), d)
	}
	k.unique("checks", names)
}

func (d *TaskDefinition) port(name string) *Port {
	for i := range d.Ports {
		if d.Ports[i].Name == name {
			return &d.Ports[i]
		}
	}
	return nil
}

func (d *TaskDefinition) container(name string) *Container {
	for i := range d.Containers {
		if d.Containers[i].Name == name {
			return &d.Containers[i]
		}
	}
	return nil
}

func (r *Restart) validate(k check) {
	if r.Mode != "" {
		oneOf(k.at("mode"), r.Mode)
	}
	k.at("limit").within(r.Limit, 1, MaxRestartLimit)
	k.at("window").span(r.Window, Duration(time.Second), MaxRestartWindow)
	k.at("max_delay").span(r.MaxDelay, Duration(time.Millisecond), MaxRestartDelay)
	k.at("delay").must(r.Delay >= Duration(time.Millisecond) && r.Delay <= r.MaxDelay,
		"is %s, want a duration from 1ms to max_delay, which is %s", r.Delay, r.MaxDelay)
}

// absolute demands an absolute path in its shortest form.
func (c check) absolute(path string) {
	c.must(cleanPath(path), "%q is not an absolute path in its shortest form: want \"/\" first, no \".\", "+
		"\"..\" or \"//\", no \"/\" last",
		clip(path))
}

// cleanPath reports whether a path is absolute, has no empty part and none that is "." or "..", and is printable.
func cleanPath(path string) bool {
	if path == "/" {
		return true
	}
	if len(path) > 4096 || !strings.HasPrefix(path, "/") || !printable(path) {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
