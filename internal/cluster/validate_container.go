package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a container.
const (
	MaxCPU = MilliCPU(1_000_000)
	// MinMemory is the least memory that a container can be given, unless it is 0: not stated.
	MinMemory = MiB
	MaxMemory = 1024 * TiB
	MinLimit  = MilliCPU(10) // of CPU time that the kernel can enforce
	MinPids   = 8            // of processes and threads, with which a program can begin
	MaxPids   = 4 << 20      // as many as a kernel counts

	MinOpenFiles = 32      // with which a program can begin
	MaxOpenFiles = 1 << 20 // as many as a kernel permits, unless its operator raised fs.nr_open

	MaxArgs = 1000
	MaxEnv  = 1000
	// MaxArg is the kernel's limit of one argument or variable, in bytes.
	MaxArg = 128<<10 - 1
)

func (d *TaskDefinition) validateContainers(k check) {
	n := len(d.Containers)
	k.at("containers").must(n > 0, "is empty: a task needs at least one container")
	k.at("containers").must(n <= MaxContainers, "holds %d containers, at most %d are allowed", n, MaxContainers)
	k.at("containers").must(n == 0 || d.Main() != nil,
		"holds only init and optional containers: want an essential container, whose end ends the task")
	names := make([]string, n)
	images := slices.ContainsFunc(d.Containers, func(c Container) bool { return c.Image != "" })
	for i := range d.Containers {
		c := &d.Containers[i]
		names[i] = c.Name
		at := k.index("containers", i)
		c.validate(at)
		c.validateEnv(at.at("env"), d)
		c.validatePaths(at, d)
		c.validateSecrets(at, d)
		c.validateServices(at, d)
		c.validateArtifacts(at)
		c.validateImageSource(at.at("image_source"))
		at.at("image").must(c.Image != "" || !images,
			"is missing: other containers of the task have one, and a task runs on one executor")
		d.validateOrder(at, i)
	}
	k.unique("containers", names)
	k.at("containers").must(d.wholeDevices() <= MaxDevices, "request %d devices together, at most %d are allowed",
		d.wholeDevices(), MaxDevices)
	if cycle := d.cycle(); cycle != nil {
		k.at("containers").fault("wait for each other by their after fields: %s", strings.Join(cycle, " after "))
	}
}

func (c *Container) validate(k check) {
	k.at("name").name(c.Name)
	if c.Image != "" {
		k.at("image").must(ValidImage(c.Image),
			"%q is not the name of an image: want \"[registry/]name[:tag]\" or \"…@sha256:…\"",
			clip(c.Image))
		oneOf(k.at("pull"), c.Pull)
		c.validatePin(k.at("digest"))
	} else {
		k.at("command").must(len(c.Command) > 0, "is missing: a container without an image needs a command")
		k.at("pull").must(c.Pull == "", "is for containers with an image only: leave it out")
		k.at("digest").must(c.Digest == "", "is for containers with an image only: leave it out")
	}
	k.arguments("command", c.Command)
	k.arguments("args", c.Args)
	k.at("command").must(len(c.Command) == 0 || c.Command[0] != "", "begins with an empty word: want a program first")
	if c.Dir != "" {
		k.at("dir").absolute(c.Dir)
	}
	k.at("user").must(validUser(c.User),
		"%q is not a user: want a name or a number from 0 to %d, alone or with a group, such as \"1000:1000\"",
		clip(c.User), maxUserID)
	seen := map[string]bool{}
	for i, name := range c.Capabilities {
		at := k.index("capabilities", i)
		short, prefixed := strings.CutPrefix(name, "CAP_")
		switch {
		case seen[name]:
			at.fault("%q is repeated: write it once", clip(name))
		case slices.Contains(capabilities[:], name):
		case prefixed && slices.Contains(capabilities[:], short):
			at.fault("%q is written %q here", name, short)
		default:
			at.fault("%q is not a capability of Linux: want a name such as \"NET_BIND_SERVICE\"", clip(name))
		}
		seen[name] = true
	}
	if c.Isolation != "" {
		oneOf(k.at("isolation"), c.Isolation)
	}
	c.Resources.validate(k.at("resources"))
}

func (r *Resources) validate(k check) {
	k.at("cpu").must(r.CPU >= 0 && r.CPU <= MaxCPU, "is %s CPUs, want from 0 to %s", r.CPU, MaxCPU)
	k.at("cpu_limit").must(r.CPULimit == 0 || r.CPULimit >= max(r.CPU, MinLimit) && r.CPULimit <= MaxCPU,
		"is %s CPUs, want none or at least %s: not less than cpu", r.CPULimit, max(r.CPU, MinLimit))
	k.at("memory").must(r.Memory == 0 || r.Memory >= MinMemory && r.Memory <= MaxMemory,
		"is %s, want from %s to %s; a number without a unit counts bytes", r.Memory, MinMemory, MaxMemory)
	k.at("pids").must(r.Pids == 0 || r.Pids >= MinPids && r.Pids <= MaxPids,
		"is %d, want from %d to %d, or none for no limit", r.Pids, MinPids, MaxPids)
	k.at("open_files").must(r.OpenFiles == 0 || r.OpenFiles >= MinOpenFiles && r.OpenFiles <= MaxOpenFiles,
		"is %d, want from %d to %d, or none for the limit of the node", r.OpenFiles, MinOpenFiles, MaxOpenFiles)
	r.validatePinning(k)
	r.validateDevices(k)
}

// arguments checks the words of a command.
func (c check) arguments(field string, words []string) {
	c.at(field).must(len(words) <= MaxArgs, "holds %d words, at most %d are allowed", len(words), MaxArgs)
	for i, w := range words {
		c.index(field, i).text(w)
	}
}

// text requires a valid argument or variable of the kernel.
func (c check) text(s string) {
	c.must(len(s) <= MaxArg, "is %d bytes long, at most %d are allowed", len(s), MaxArg)
	c.must(utf8.ValidString(s) && !strings.Contains(s, "\x00"), "is not UTF-8 text without zero bytes")
}

func (c *Container) validateEnv(k check, d *TaskDefinition) {
	k.must(len(c.Env) <= MaxEnv, "holds %d variables, at most %d are allowed", len(c.Env), MaxEnv)
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		at := k.key(name)
		at.text(c.Env[name])
		if name == "" || len(name) > MaxLabel || strings.ContainsAny(name, "= ") || !printable(name) {
			at.fault("is not the name of a variable: want printable text without \"=\" and spaces")
			continue
		}
		at.must(!strings.HasPrefix(name, EnvBerth),
			"begins with %s, which is reserved for variables that Berth sets", EnvBerth)
		for _, p := range d.Ports {
			at.must(name != PortVariable(p.Name) && name != AddrVariable(p.Name),
				"is set by Berth for port %q: rename the variable or the port", clip(p.Name))
		}
	}
}

// validatePaths checks the paths in the container's file tree.
func (c *Container) validatePaths(k check, d *TaskDefinition) {
	taken := make(map[string]string)
	place := func(field string, i int, path string) {
		at := k.index(field, i).at("path")
		switch {
		case !cleanPath(path):
			at.absolute(path)
		case path == "/" || within(path, "/proc") || within(path, "/sys"):
			at.fault("%q cannot be mounted over: want a path outside of /proc and /sys", clip(path))
		case taken[path] != "":
			at.fault("%q is already the path of %s", clip(path), taken[path])
		default:
			taken[path] = field + "[" + strconv.Itoa(i) + "]"
		}
	}
	for i, m := range c.Mounts {
		place("mounts", i, m.Path)
		known := slices.ContainsFunc(d.Volumes, func(v Volume) bool { return v.Name == m.Volume })
		k.index("mounts", i).at("volume").must(known, "%q is not the name of one of the definition's volumes",
			clip(m.Volume))
	}
	for i, t := range c.Tmpfs {
		place("tmpfs", i, t.Path)
		k.index("tmpfs", i).at("size").must(t.Size > 0 && t.Size <= MaxMemory, "is %s, want a size from 1 B to %s",
			t.Size, MaxMemory)
	}
	for i := range c.Artifacts {
		if c.Artifacts[i].Shared() {
			place("artifacts", i, c.Artifacts[i].Path)
		}
	}
	for i, f := range c.Files {
		place("files", i, f.Path)
		k.index("files", i).at("content").must(utf8.ValidString(f.Content),
			"is not UTF-8 text: put binary files into an image or a volume")
		mode, err := strconv.ParseUint(f.Mode, 8, 32)
		k.index("files", i).at("mode").must(err == nil && len(f.Mode) <= 5 && mode <= 0o7777,
			"%q is not a file mode: want octal digits, such as \"0644\"", clip(f.Mode))
	}
}

// within reports whether a path is a folder or lies below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// validateOrder checks a container's place in the order of starts.
func (d *TaskDefinition) validateOrder(k check, i int) {
	c := &d.Containers[i]
	k.at("optional").must(!c.Init || !c.Optional,
		"is not for init containers: the task starts only after they succeeded")
	k.at("after").must(!c.Init || len(c.After) == 0, "is not for init containers: they run in the order of the list")
	for n, name := range c.After {
		at := k.index("after", n)
		before := d.container(name)
		switch {
		case name == c.Name:
			at.fault("%q is the container itself", clip(name))
		case before == nil:
			at.fault("%q is not the name of one of the definition's containers", clip(name))
		case before.Init:
			at.fault("%q is an init container: init containers always end before the others start", name)
		}
	}
}

// cycle returns containers that wait for each other, the first one again at the end, or nil.
func (d *TaskDefinition) cycle() []string {
	const visiting, done = 1, 2
	state := make(map[string]int, len(d.Containers))
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		switch state[name] {
		case visiting:
			return append(slices.Clone(path[slices.Index(path, name):]), name)
		case done:
			return nil
		}
		c := d.container(name)
		if c == nil {
			return nil
		}
		state[name] = visiting
		path = append(path, name)
		for _, before := range c.After {
			if before == name {
				continue // validateOrder reports it
			}
			if found := visit(before); found != nil {
				return found
			}
		}
		path = path[:len(path)-1]
		state[name] = done
		return nil
	}
	for i := range min(len(d.Containers), MaxContainers) {
		if found := visit(d.Containers[i].Name); found != nil {
			return found
		}
	}
	return nil
}

// maxUserID is the highest number of a user or a group: Linux reserves the next one, which is -1.
const maxUserID = 1<<32 - 2

// validUser reports whether s is empty, "user" or "user:group", each a number or a name.
func validUser(s string) bool {
	if s == "" {
		return true
	}
	parts := strings.Split(s, ":")
	if len(parts) > 2 || len(s) > 2*MaxName {
		return false
	}
	return !slices.ContainsFunc(parts, func(p string) bool { return !validUserPart(p) })
}

// validUserPart reports whether s is the number or the name of a user or a group. A name begins with a letter, a digit
// or "_".
func validUserPart(s string) bool {
	if s == "" || s[0] == '-' || s[0] == '.' {
		return false
	}
	if strings.Trim(s, "0123456789") == "" {
		n, err := strconv.ParseUint(s, 10, 64)
		return err == nil && n <= maxUserID
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !isAlnum(r) && r != '_' && r != '-' && r != '.' })
}

func isAlnum(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// ValidImage reports whether s has the form of a reference to an image: an optional registry with a dot, a port or
// the name localhost; a path of lower-case parts; an optional tag and an optional digest.
func ValidImage(s string) bool {
	if len(s) > MaxImage {
		return false
	}
	name, digest, hasDigest := strings.Cut(s, "@")
	if hasDigest && !validDigest(digest) {
		return false
	}
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		if !validTag(name[colon+1:]) {
			return false
		}
		name = name[:colon]
	}
	parts := strings.Split(name, "/")
	if len(parts) > 1 && (strings.ContainsAny(parts[0], ".:") || parts[0] == "localhost") {
		if !validRegistry(parts[0]) {
			return false
		}
		parts = parts[1:]
	}
	for _, p := range parts {
		if !validImagePart(p) {
			return false
		}
	}
	return true
}

func validRegistry(s string) bool {
	host, port, found := s, "", false
	if colon := strings.LastIndexByte(s, ':'); colon > strings.LastIndexByte(s, ']') {
		host, port, found = s[:colon], s[colon+1:], true
	}
	if found {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && strings.Trim(inner, "0123456789abcdefABCDEF:") == ""
	}
	return ValidNodeName(strings.ToLower(host))
}

// validImagePart reports whether s is lower-case letters and digits, with separators between them only.
func validImagePart(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			continue
		}
		if i == 0 || i == len(s)-1 || c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func validTag(s string) bool {
	return s != "" && len(s) <= 128 && s[0] != '.' && s[0] != '-' &&
		!strings.ContainsFunc(s, func(r rune) bool { return !isAlnum(r) && r != '_' && r != '.' && r != '-' })
}

// validatePin checks the digest that the image is pinned to.
func (c *Container) validatePin(k check) {
	if c.Digest == "" {
		return
	}
	k.must(validDigest(c.Digest), "%q is not the digest of an image: want \"sha256:\" and 64 hexadecimal digits",
		clip(c.Digest))
	k.must(!strings.Contains(c.Image, "@"), "is already part of image: write it once")
	k.must(c.Pull == "" || c.Pull == PullMissing,
		"cannot be combined with pull %q, which runs the newest image of the name: leave out one of them", c.Pull)
}

func validDigest(s string) bool {
	algorithm, hex, _ := strings.Cut(s, ":")
	length := 0
	switch algorithm {
	case "sha256":
		length = 64
	case "sha512":
		length = 128
	}
	return length != 0 && len(hex) == length && strings.Trim(hex, "0123456789abcdef") == ""
}

// capabilities are the capabilities of Linux, without "CAP_".
var capabilities = [...]string{
	"AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN",
	"DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE",
	"LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST",
	"NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT",
	"SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME",
	"SYS_TTY_CONFIG", "WAKE_ALARM",
}
