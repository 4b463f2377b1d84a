package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Permission allows the tasks of a cluster one thing that reaches beyond the task: its node, or what other tasks have
// there. A cluster without permissions allows none of them.
type Permission string

// Permissions, in the order in which they are listed.
const (
	// PermitCapabilities allows a container to keep capabilities of Linux.
	PermitCapabilities Permission = "capabilities"
	// PermitDevices allows a container to hold devices of its node.
	PermitDevices Permission = "devices"
	// PermitDiscovery allows a task to be registered in Consul, where others find it by the name and the tags that its
	// definition chooses.
	PermitDiscovery Permission = "discovery"
	// PermitHostNetwork allows a task to be on the network of its node, as tasks are that name no network.
	PermitHostNetwork Permission = "host-network"
	// PermitHostPath allows a volume or the source of an artifact or image to name a path of the node, among those that
	// its agent lends. Volumes that nodes declare need no permission.
	PermitHostPath Permission = "host-path"
	// PermitNoIsolation allows a container to refuse isolation.
	PermitNoIsolation Permission = "no-isolation"
	// PermitRoot allows a container to name root as its user or group.
	PermitRoot Permission = "root"
)

// Values returns every Permission, in the order of the constants.
func (Permission) Values() []Permission {
	return []Permission{
		PermitCapabilities, PermitDevices, PermitDiscovery, PermitHostNetwork, PermitHostPath, PermitNoIsolation,
		PermitRoot,
	}
}

// Permissions returns all of them, in order.
func Permissions() []Permission { return Permission("").Values() }

// ParsePermissions reads a list such as "root,host-network"; "all" means all permissions and "" none.
func ParsePermissions(text string) ([]Permission, error) {
	switch text {
	case "":
		return nil, nil
	case "all":
		return Permissions(), nil
	}
	var all []Permission
	for word := range strings.SplitSeq(text, ",") {
		p := Permission(strings.TrimSpace(word))
		if !slices.Contains(Permissions(), p) {
			return nil, fmt.Errorf("%q is not a permission: want some of %s with commas between them, or all",
				clip(word), permissionWords())
		}
		all = append(all, p)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func permissionWords() string {
	words := make([]string, 0, len(Permissions()))
	for _, p := range Permissions() {
		words = append(words, string(p))
	}
	return strings.Join(words, ", ")
}

// Privilege is a field of a task definition that needs a permission.
type Privilege struct {
	Permission Permission
	Path       string // of the field: "containers[0].user"
	What       string // what it says: `is "root"`
}

// Privileges returns the fields of the definition that need a permission, in their order. It reads the definition only:
// the user of an image is confined by the container, see docs/guide/security.md.
func (d *TaskDefinition) Privileges() (all []Privilege) {
	add := func(p Permission, path, format string, args ...any) {
		all = append(all, Privilege{p, path, fmt.Sprintf(format, args...)})
	}
	for i := range d.Containers {
		c, at := &d.Containers[i], fmt.Sprintf("containers[%d]", i)
		if NamesRoot(c.User) {
			add(PermitRoot, at+".user", "is %q", c.User)
		}
		if len(c.Capabilities) > 0 {
			add(PermitCapabilities, at+".capabilities", "keeps %s", strings.Join(c.Capabilities, ", "))
		}
		if len(c.Resources.Devices) > 0 {
			add(PermitDevices, at+".resources.devices", "requests devices of the node")
		}
		if source := c.ImageSource.Source; HostFile(source) != "" {
			add(PermitHostPath, at+".image_source.source", "is %s", clip(source))
		}
		for j := range c.Artifacts {
			if source := c.Artifacts[j].Source; HostFile(source) != "" {
				add(PermitHostPath, fmt.Sprintf("%s.artifacts[%d].source", at, j), "is %s", clip(source))
			}
		}
		if c.Isolation == IsolationNone {
			add(PermitNoIsolation, at+".isolation", "is %s", c.Isolation)
		}
	}
	for i := range d.Volumes {
		if host := d.Volumes[i].Host; host != "" {
			add(PermitHostPath, fmt.Sprintf("volumes[%d].host", i), "is %s", clip(host))
		}
	}
	if d.UsesConsul() {
		add(PermitDiscovery, "discovery.consul", "registers tasks in Consul")
	}
	switch {
	case d.Network == "":
		add(PermitHostNetwork, "network", "is not set, which means host")
	case d.OwnNetwork() == "":
		add(PermitHostNetwork, "network", "is %s", d.Network)
	}
	return all
}

// NamesRoot reports whether the user of a container, in the form of Container.User, names root as its user or its
// group, by name or by number.
func NamesRoot(user string) bool {
	return slices.ContainsFunc(strings.Split(user, ":"), func(part string) bool {
		n, err := strconv.Atoi(part) // "00" and "-0" are 0, too
		return part == "root" || err == nil && n == 0
	})
}

// remedy returns the advice for a definition without the permission.
func (p Permission) remedy() string {
	switch p {
	case PermitHostNetwork:
		return "use network bridge or none"
	case PermitHostPath:
		return "use a volume that the agent keeps, one that the node declares (host_volume), or the address of an " +
			"artifact"
	case PermitRoot:
		return "name another user"
	default:
		return "leave it out"
	}
}

// CheckPermissions returns one fault for each field of a definition that needs a permission which the cluster lacks.
// path is the path of the reference to the definition.
func (c *Cluster) CheckPermissions(path string, d *TaskDefinition) (faults Faults) {
	for _, p := range c.lackedBy(d) {
		faults = append(faults, Fault{Path: path, Message: fmt.Sprintf("%s: %s %s", d.Ref(), p.Path, c.lackText(p))})
	}
	return faults
}

// CheckInlinePermissions does the same for a definition inside of its owner; path is the path of the definition.
func (c *Cluster) CheckInlinePermissions(path string, d *TaskDefinition) (faults Faults) {
	for _, p := range c.lackedBy(d) {
		faults = append(faults, Fault{Path: path + "." + p.Path, Message: c.lackText(p)})
	}
	return faults
}

// lackedBy returns the fields of a definition that need a permission which the cluster lacks.
func (c *Cluster) lackedBy(d *TaskDefinition) []Privilege {
	return slices.DeleteFunc(d.Privileges(), func(p Privilege) bool {
		return slices.Contains(c.Permissions, p.Permission)
	})
}

func (c *Cluster) lackText(p Privilege) string {
	return fmt.Sprintf("%s, which needs the permission %s, and cluster %s does not have it: %s, or ask an admin to "+
		"add %s to the permissions of the cluster", p.What, p.Permission, c.Name, p.Permission.remedy(), p.Permission)
}

// LackOf says which permissions the tasks of a definition need and the cluster lacks; empty if none. A nil cluster
// lacks none, and a nil definition needs none.
func (c *Cluster) LackOf(d *TaskDefinition) string {
	if c == nil || d == nil {
		return ""
	}
	var lacked []string
	for _, p := range d.Privileges() {
		if !slices.Contains(c.Permissions, p.Permission) {
			lacked = append(lacked, string(p.Permission))
		}
	}
	slices.Sort(lacked)
	switch lacked = slices.Compact(lacked); len(lacked) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s needs the permission %s, which cluster %s lacks", d.Ref(), lacked[0], c.Name)
	}
	return fmt.Sprintf("%s needs the permissions %s, which cluster %s lacks", d.Ref(), strings.Join(lacked, ", "),
		c.Name)
}

// validatePermissions checks the permissions of a cluster.
func (c *Cluster) validatePermissions(k check) {
	seen := map[Permission]bool{}
	for i, p := range c.Permissions {
		at := k.element(i)
		oneOf(at, p)
		at.must(!seen[p], "%q is repeated: write it once", clip(string(p)))
		seen[p] = true
	}
}

// SamePermissions reports whether two lists hold the same permissions.
func SamePermissions(a, b []Permission) bool {
	sorted := func(list []Permission) []Permission {
		return slices.Compact(slices.SortedFunc(slices.Values(list), cmp.Compare[Permission]))
	}
	return slices.Equal(sorted(a), sorted(b))
}
