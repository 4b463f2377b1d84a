package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of profiles.
const (
	// MaxProfileFiles and MaxProfileFile limit the files of a profile, and the size of all of them together in bytes,
	// so that a record stays below the limit of every store.
	MaxProfileFiles = 64
	MaxProfileFile  = 128 << 10
	// MaxProfileItems limits the packages, settings of the kernel, modules and users of a profile, each.
	MaxProfileItems = 256
	// MaxAgentFlags limits the further flags of the agent.
	MaxAgentFlags = 64
)

// DefaultClockSkew is how far the clock of a machine may be from the clock of the machine that adds it.
const DefaultClockSkew = Duration(2 * time.Second)

// AllDistributions is the key of Profile.Packages for every distribution.
const AllDistributions = "all"

// Profile is what a machine needs before it is a node: the record profile/<p>/<version>. A version never changes.
// Writer: the user.
type Profile struct {
	Name string `json:"name"`
	// Version is the number of the version, from 1 up. A version never changes.
	Version int `json:"version"`
	// Requires is the hardware and the kernel that a machine must have. A machine without them is not changed.
	Requires MachineNeeds `json:"requires,omitzero"`
	// Packages maps a distribution, by its ID in os-release such as "debian", to the packages that it needs. The list
	// of "all" is for every distribution.
	Packages map[string][]string `json:"packages,omitempty"`
	// Modules of the kernel are loaded now and at each boot.
	Modules []string `json:"modules,omitempty"`
	// Sysctls are settings of the kernel, such as net.core.somaxconn. They are set now and at each boot.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Users are made before the files, so that files may belong to them.
	Users []ProfileUser `json:"users,omitempty"`
	// Files are written in the order of the list.
	Files []ProfileFile `json:"files,omitempty"`
	// Agent holds what the profile sets for the Berth agent of the machine.
	Agent AgentSettings `json:"agent,omitzero"`
}

// Ref returns the name and the version of the profile.
func (p *Profile) Ref() Ref { return Ref{Name: p.Name, Version: p.Version} }

// MachineNeeds are lower limits of a machine; a zero value demands nothing.
type MachineNeeds struct {
	// Arch lists the accepted architectures, as Go names them: "amd64", "arm64".
	Arch []string `json:"arch,omitempty"`
	// CPU is the least number of hardware threads that the machine must have.
	CPU int `json:"cpu,omitempty"`
	// Memory is the least main memory that the machine must have.
	Memory Bytes `json:"memory,omitempty"`
	// Disk is the capacity of the file system that holds the agent's data.
	Disk Bytes `json:"disk,omitempty"`
	// Kernel is the lowest version, such as "5.10".
	Kernel string `json:"kernel,omitempty"`
	// Cgroups is the lowest version of control groups: 1 or 2.
	Cgroups int `json:"cgroups,omitempty"`
	// LinkSpeed is the speed of the fastest network interface, in Mbit/s.
	LinkSpeed int `json:"link_speed,omitempty"`
	// GPUs is the number of GPUs on the PCI bus, with or without their drivers.
	GPUs int `json:"gpus,omitempty"`
	// ClockSkew is the largest difference between the clocks of the machine and of the one that adds it. Default
	// 2s.
	ClockSkew Duration `json:"clock_skew,omitempty"`
}

// ProfileUser is an account of the machine.
type ProfileUser struct {
	Name string `json:"name"`
	// UID, unless 0, is the number of the user, and of a group with the same name.
	UID int `json:"uid,omitempty"`
	// Home is a folder that is made for the user. Default: none.
	Home string `json:"home,omitempty"`
	// Shell is the program that a login of the user starts. Default: one that refuses logins.
	Shell string `json:"shell,omitempty"`
	// Groups are further groups; they are made if they are missing.
	Groups []string `json:"groups,omitempty"`
}

// ProfileFile is a file of the machine, with the folders above it.
type ProfileFile struct {
	// Path is the absolute path of the file on the machine.
	Path string `json:"path"`
	// Content is what is written into the file, as it is.
	Content string `json:"content,omitempty"`
	// Mode is who may read and write the file, in octal digits. Default "0644".
	Mode string `json:"mode,omitempty"`
	// Owner is a user of the machine, and optionally a group after a colon. Default "root".
	Owner string `json:"owner,omitempty"`
	// Restart names services of the machine that are restarted when the file changes.
	Restart []string `json:"restart,omitempty"`
}

// AgentSettings are settings of the agent of a machine.
type AgentSettings struct {
	// Executor is what runs the containers of the machine. Default: that of `berth agent`.
	Executor AgentExecutor `json:"executor,omitempty"`
	// Labels are attributes of the node, for constraints and affinities of tasks.
	Labels Labels `json:"labels,omitempty"`
	// Flags are further flags of `berth agent`, one argument each, such as "--cores=2-7".
	Flags []string `json:"flags,omitempty"`
}

// AgentExecutor is the choice of an agent's executor.
type AgentExecutor string

// Choices of an executor.
const (
	AgentAuto       AgentExecutor = "auto"
	AgentContainerd AgentExecutor = "containerd"
	AgentProcess    AgentExecutor = "process"
)

// Values returns every AgentExecutor, in the order of the constants.
func (AgentExecutor) Values() []AgentExecutor {
	return []AgentExecutor{AgentAuto, AgentContainerd, AgentProcess}
}

// ModeBits returns the mode of the file as a number; a mode that Validate refuses gives 0644.
func (f *ProfileFile) ModeBits() uint32 {
	n, err := strconv.ParseUint(cmp.Or(f.Mode, "0644"), 8, 12)
	if err != nil {
		return 0o644
	}
	return uint32(n)
}

// UserAndGroup returns the owner of the file and its group. Without a group it is that of the user, and empty.
func (f *ProfileFile) UserAndGroup() (user, group string) {
	user, group, _ = strings.Cut(cmp.Or(f.Owner, "root"), ":")
	return user, group
}

// PackagesFor returns the packages for distributions, such as "ubuntu" and the "debian" that it is like, in order and
// each once.
func (p *Profile) PackagesFor(distributions ...string) []string {
	all := slices.Clone(p.Packages[AllDistributions])
	for _, d := range distributions {
		if d != AllDistributions {
			all = append(all, p.Packages[d]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// SetDefaults changes nothing: a field that is left out changes nothing on a machine.
func (*Profile) SetDefaults() {}

// form is how the names of one kind of things on machines are spelled. No form has room for options, patterns and
// commands.
type form struct {
	first, rest string // the characters that may be first, and those after it
	most        int    // bytes
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
	word   = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
)

// has reports whether a text has the form.
func (f form) has(s string) bool {
	return s != "" && len(s) <= f.most && strings.ContainsRune(f.first, rune(s[0])) && strings.Trim(s[1:], f.rest) == ""
}

func packageForm() form { return form{lower + digits, lower + digits + "+._-", 127} }
func moduleForm() form  { return form{word, word + "_-", 63} }
func serviceForm() form { return form{word, word + "@._-", 127} }
func userForm() form    { return form{lower + "_", lower + digits + "_-", 32} }

// isSysctl reports whether a text is a name such as "net.core.somaxconn" or "net/ipv4/conf/eth0.1/forwarding".
func isSysctl(s string) bool {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '/' })
	return form{lower, word + "_-./", 127}.has(s) && len(parts) > 1 &&
		strings.Count(s, ".")+strings.Count(s, "/") == len(parts)-1
}

// KernelVersion returns the first three numbers of a version such as "6.1.0-32-amd64"; ok is false without a number.
func KernelVersion(s string) (version [3]int, ok bool) {
	for i := range version {
		end := len(s) - len(strings.TrimLeft(s, digits))
		n, err := strconv.Atoi(s[:end])
		if err != nil {
			return version, i > 0
		}
		version[i] = n
		if s = s[end:]; !strings.HasPrefix(s, ".") {
			return version, true
		}
		s = s[1:]
	}
	return version, true
}

// ownAgentFlag returns what sets a flag of the agent, if a profile may not set it.
func ownAgentFlag(name string) string {
	switch name {
	case "server", "address", "join-token-file", "token-file", "data-dir":
		return "berth node add"
	case "name":
		return "the argument NAME=ADDRESS of berth node add"
	case "executor", "label":
		return "the field " + strings.Replace(name, "label", "labels", 1)
	}
	return ""
}

// Validate returns all faults of the profile as Faults, or nil.
func (p *Profile) Validate() error {
	k := newCheck()
	k.at("name").name(p.Name)
	k.at("version").must(p.Version >= 1, "is %d, want a number from 1 up", p.Version)
	p.Requires.validate(k.at("requires"))
	for _, d := range slices.Sorted(maps.Keys(p.Packages)) {
		entry := k.at("packages").key(d)
		entry.must(packageForm().has(d),
			"is no distribution: want its ID in os-release, such as \"debian\", or \"all\"")
		entry.words(p.Packages[d], packageForm(), "the name of a package")
	}
	k.at("packages").must(len(p.Packages) <= MaxProfileItems, "lists %d distributions, at most %d are allowed",
		len(p.Packages), MaxProfileItems)
	k.at("modules").words(p.Modules, moduleForm(), "the name of a kernel module")
	p.validateSysctls(k.at("sysctls"))
	p.validateUsers(k)
	p.validateFiles(k)
	p.Agent.validate(k.at("agent"))
	return k.err()
}

// words requires that all words of a list have a form, and that no word repeats.
func (c check) words(list []string, form form, what string) {
	c.must(len(list) <= MaxProfileItems, "has %d entries, at most %d are allowed", len(list), MaxProfileItems)
	seen := map[string]bool{}
	for i, w := range list {
		c.element(i).must(form.has(w), "%q is not %s", clip(w), what)
		c.element(i).must(!seen[w], "%q is listed twice", clip(w))
		seen[w] = true
	}
}

func (n *MachineNeeds) validate(k check) {
	known := []string{"amd64", "arm64"}
	for i, a := range n.Arch {
		k.index("arch", i).must(slices.Contains(known, a), "is %q, want one of %s", clip(a), strings.Join(known, ", "))
	}
	for _, f := range []struct {
		field string
		value int64
	}{
		{"cpu", int64(n.CPU)},
		{"memory", int64(n.Memory)},
		{"disk", int64(n.Disk)},
		{"link_speed", int64(n.LinkSpeed)},
		{"gpus", int64(n.GPUs)},
	} {
		k.at(f.field).must(f.value >= 0, "is negative, want 0 or more")
	}
	_, ok := KernelVersion(n.Kernel)
	k.at("kernel").must(n.Kernel == "" || ok && strings.Trim(n.Kernel, digits+".") == "",
		"is %q, want a version such as \"5.10\"", clip(n.Kernel))
	k.at("cgroups").must(n.Cgroups >= 0 && n.Cgroups <= 2, "is %d, want 1 or 2", n.Cgroups)
	if n.ClockSkew != 0 {
		k.at("clock_skew").span(n.ClockSkew, Duration(time.Millisecond), Duration(time.Hour))
	}
}

func (p *Profile) validateSysctls(k check) {
	k.must(len(p.Sysctls) <= MaxProfileItems, "has %d entries, at most %d are allowed", len(p.Sysctls), MaxProfileItems)
	for _, name := range slices.Sorted(maps.Keys(p.Sysctls)) {
		entry, value := k.key(name), p.Sysctls[name]
		entry.must(isSysctl(name), "is not a setting of the kernel, such as \"net.core.somaxconn\"")
		entry.must(value != "" && len(value) <= MaxLabel && printable(value),
			"has a value that is empty, longer than %d bytes or not printable text", MaxLabel)
	}
}

func (p *Profile) validateUsers(k check) {
	k.at("users").must(len(p.Users) <= MaxProfileItems, "has %d entries, at most %d are allowed", len(p.Users),
		MaxProfileItems)
	names := make([]string, len(p.Users))
	for i, u := range p.Users {
		names[i] = u.Name
		entry := k.index("users", i)
		entry.at("name").must(userForm().has(u.Name), "%q is not the name of a user", clip(u.Name))
		entry.at("name").must(u.Name != "root", "is root: a profile does not change root")
		entry.at("uid").must(u.UID >= 0 && u.UID < 1<<31, "is %d, want 1 to 2147483647", u.UID)
		if u.Home != "" {
			entry.at("home").absolute(u.Home)
		}
		if u.Shell != "" {
			entry.at("shell").absolute(u.Shell)
		}
		entry.at("groups").words(u.Groups, userForm(), "the name of a group")
	}
	k.unique("users", names)
}

func (p *Profile) validateFiles(k check) {
	k.at("files").must(len(p.Files) <= MaxProfileFiles, "has %d entries, at most %d are allowed", len(p.Files),
		MaxProfileFiles)
	size, first := 0, map[string]int{}
	for i, f := range p.Files {
		entry := k.index("files", i)
		entry.at("path").absolute(f.Path)
		entry.at("path").must(f.Path != "/", "is the root folder: want the path of a file")
		if at, ok := first[f.Path]; ok {
			entry.at("path").fault("%q is already the path of files[%d]", clip(f.Path), at)
		} else {
			first[f.Path] = i
		}
		entry.at("mode").must(f.Mode == "" || len(f.Mode) >= 3 && form{"01234567", "01234567", 4}.has(f.Mode),
			"is %q, want octal digits such as \"0644\"", clip(f.Mode))
		user, group, both := strings.Cut(f.Owner, ":")
		entry.at("owner").must(f.Owner == "" || userForm().has(user) && (!both || userForm().has(group)),
			"is %q, want a user, or a user and a group such as \"app:adm\"", clip(f.Owner))
		entry.at("restart").words(f.Restart, serviceForm(), "the name of a service")
		size += len(f.Content)
	}
	k.at("files").must(size <= MaxProfileFile,
		"has %d bytes of content, at most %d are allowed: put larger files into a package", size, MaxProfileFile)
}

func (a *AgentSettings) validate(k check) {
	if a.Executor != "" {
		oneOf(k.at("executor"), a.Executor)
	}
	k.at("labels").labels(a.Labels)
	k.at("flags").must(len(a.Flags) <= MaxAgentFlags, "has %d entries, at most %d are allowed", len(a.Flags),
		MaxAgentFlags)
	for i, f := range a.Flags {
		entry := k.index("flags", i)
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		if !strings.HasPrefix(f, "--") || !(form{lower, lower + digits + "-", 63}).has(name) || !printable(f) ||
			len(f) > MaxLabel {
			entry.fault("is %q, want one flag with its value, such as \"--cores=2-7\"", clip(f))
			continue
		}
		if by := ownAgentFlag(name); by != "" {
			entry.fault("--%s is set by %s", name, by)
		}
	}
}
