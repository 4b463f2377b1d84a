// Package runspec makes the specification of a container, as the runtime reads it.
package runspec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	capability "github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/containerd/v2/pkg/oci"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// cpuPeriod is the period of a CPU limit in microseconds.
const cpuPeriod = 100_000

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// FilesDir, in a container's folder, holds the files of the manifest.
const FilesDir = "files"

// Builder makes the specifications of the containers of one node.
type Builder struct {
	// NoSeccomp leaves out the default seccomp profile.
	NoSeccomp bool
	// Launcher is the program that starts the programs of containers that get variables from secrets.
	Launcher string
	// CDIDirs are where specifications of devices are, by default those of the Container Device Interface.
	CDIDirs []string
}

// unsupported returns the error of a field that the executor cannot do.
func unsupported(field, why string) error {
	return fmt.Errorf("%s: %w: %s", field, executor.ErrUnsupported, why)
}

// Options returns what makes containerd's own specification that of a container with an image, capabilities and a
// cgroup.
func (b *Builder) Options(spec *executor.Spec, cfg ocispec.ImageConfig, caps []string, cgroup string) []oci.SpecOpts {
	return []oci.SpecOpts{
		process(spec, cfg), user(spec, cfg), b.files(spec), b.secrets(spec), mounts(spec),
		b.isolate(spec, caps, cgroup), b.seccomp(), b.devices(spec),
	}
}

// process sets what runs: Command replaces the image's entry point and arguments, Args its arguments only.
func process(spec *executor.Spec, cfg ocispec.ImageConfig) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		c := &spec.Container
		args := slices.Concat(c.Command, c.Args)
		if len(c.Command) == 0 {
			args = slices.Concat(cfg.Entrypoint, cfg.Cmd)
			if len(c.Args) > 0 {
				args = slices.Concat(cfg.Entrypoint, c.Args)
			}
		}
		if len(args) == 0 {
			return unsupported("command", "neither the manifest nor the image names one")
		}
		s.Process.Args = args
		s.Process.Env = []string{defaultPath}
		s.Process.Env = Override(Override(s.Process.Env, cfg.Env), spec.Env)
		s.Process.Cwd = "/"
		for _, dir := range []string{cfg.WorkingDir, c.Dir} {
			if dir != "" {
				s.Process.Cwd = dir
			}
		}
		return nil
	}
}

// Override returns env with the values of over. Each name occurs once, at its first position.
func Override(env, over []string) []string {
	env = slices.Clone(env)
	for _, kv := range over {
		name, _, _ := strings.Cut(kv, "=")
		i := slices.IndexFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		if i < 0 {
			env = append(env, kv)
		} else {
			env[i] = kv
		}
	}
	return env
}

// user sets the user of the manifest or of the image. Numeric users need no lookup in the image.
func user(spec *executor.Spec, cfg ocispec.ImageConfig) oci.SpecOpts {
	name := spec.Container.User
	if name == "" {
		name = cfg.User
	}
	if name == "" {
		return func(context.Context, oci.Client, *containers.Container, *oci.Spec) error { return nil }
	}
	return func(ctx context.Context, cl oci.Client, c *containers.Container, s *oci.Spec) error {
		if err := oci.WithUser(name)(ctx, cl, c, s); err != nil {
			return fmt.Errorf("user: %q: %w", name, err)
		}
		return nil
	}
}

// files writes the manifest's files into the container's folder, the user's own, and shows them.
func (b *Builder) files(spec *executor.Spec) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		dir := filepath.Join(spec.Dir, FilesDir)
		if len(spec.Container.Files) == 0 {
			return nil
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write files: %w", err)
		}
		for i, f := range spec.Container.Files {
			name := filepath.Join(dir, strconv.Itoa(i))
			if err := writeFile(name, f, s.Process.User); err != nil {
				return fmt.Errorf("files: %s: %w", f.Path, err)
			}
			s.Mounts = append(s.Mounts, bind(name, f.Path, true))
		}
		return nil
	}
}

func writeFile(name string, f cluster.File, user specs.User) error {
	mode := uint64(0o644)
	if f.Mode != "" {
		var err error
		if mode, err = strconv.ParseUint(f.Mode, 8, 12); err != nil {
			return fmt.Errorf("%q is not a file mode: %w", f.Mode, err)
		}
	}
	_ = os.Remove(name)
	if err := os.WriteFile(name, []byte(f.Content), 0o600); err != nil {
		return err
	}
	if err := os.Chown(name, int(user.UID), int(user.GID)); err != nil {
		return err
	}
	return os.Chmod(name, os.FileMode(mode))
}

func bind(source, path string, readOnly bool) specs.Mount {
	m := specs.Mount{Type: "bind", Source: source, Destination: path, Options: []string{"rbind", "rprivate", "rw"}}
	if readOnly {
		m.Options = []string{"rbind", "rprivate", "ro"}
	}
	if readOnly && kernelSetsMounts() {
		m.Options = append(m.Options, "rro")
	}
	return m
}

// kernelSetsMounts reports whether the kernel can make a mount read-only with everything below it (Linux 5.12). runc
// fails if it is asked to and cannot. A runc before 1.1 does not know the option; then only the topmost mount is
// read-only.
func kernelSetsMounts() bool {
	return !errors.Is(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}), unix.ENOSYS)
}

// mounts shows volumes, memory, and the node's network files.
func mounts(spec *executor.Spec) oci.SpecOpts {
	return func(ctx context.Context, cl oci.Client, c *containers.Container, s *oci.Spec) error {
		if err := oci.WithoutRunMount(ctx, cl, c, s); err != nil {
			return err
		}
		for _, m := range spec.Mounts {
			s.Mounts = append(s.Mounts, bind(m.Source, m.Path, m.ReadOnly))
		}
		for _, t := range spec.Container.Tmpfs {
			size := t.Size
			if size == 0 {
				size = 64 * cluster.MiB
			}
			s.Mounts = append(s.Mounts, specs.Mount{
				Type: "tmpfs", Source: "tmpfs", Destination: t.Path,
				Options: []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(int64(size), 10)},
			})
		}
		for _, file := range []string{"/etc/hosts", "/etc/resolv.conf"} {
			taken := slices.ContainsFunc(s.Mounts, func(m specs.Mount) bool {
				return filepath.Clean(m.Destination) == file
			})
			if _, err := os.Stat(file); err == nil && !taken {
				s.Mounts = append(s.Mounts, bind(file, file, true))
			}
		}
		// A path above another must be mounted first.
		slices.SortStableFunc(s.Mounts, func(a, b specs.Mount) int {
			return strings.Count(filepath.Clean(a.Destination), "/") - strings.Count(filepath.Clean(b.Destination), "/")
		})
		return nil
	}
}

// isolate sets namespaces, privileges and limits.
func (b *Builder) isolate(spec *executor.Spec, caps []string, cgroup string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		// The network is the node's unless it is given, and so is its name.
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
			return n.Type == specs.NetworkNamespace || n.Type == specs.UTSNamespace
		})
		if spec.Network != "" {
			s.Linux.Namespaces = append(s.Linux.Namespaces,
				specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: spec.Network})
		}
		s.Linux.CgroupsPath = cgroup
		s.Root.Readonly = spec.Container.ReadOnlyRoot
		s.Process.NoNewPrivileges = true
		s.Process.Rlimits = nil // those of containerd: to raise one takes a privilege that it may lack
		if n := uint64(max(spec.Container.Resources.OpenFiles, 0)); n > 0 {
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: n, Hard: n}}
		}
		s.Process.Capabilities = &specs.LinuxCapabilities{
			Bounding: caps, Permitted: caps, Effective: caps, Inheritable: caps, Ambient: caps,
		}
		limit(s.Linux.Resources, spec.Container.Resources)
		s.Linux.Resources.CPU.Cpus, s.Linux.Resources.CPU.Mems = spec.CPUs, spec.NumaNodes
		return nil
	}
}

// seccomp refuses what containerd's default profile refuses, given the capabilities.
func (b *Builder) seccomp() oci.SpecOpts {
	if b.NoSeccomp {
		return func(context.Context, oci.Client, *containers.Container, *oci.Spec) error { return nil }
	}
	return seccomp.WithDefaultProfile()
}

func limit(to *specs.LinuxResources, r cluster.Resources) {
	if r.Memory > 0 {
		memory := int64(r.Memory)
		to.Memory = &specs.LinuxMemory{Limit: &memory}
		if swapLimited() {
			to.Memory.Swap = &memory // memory and swap together: no swap
		}
	}
	cpu := &specs.LinuxCPU{}
	if r.CPU > 0 {
		shares := uint64(max(int64(r.CPU)*1024/1000, 2))
		cpu.Shares = &shares
	}
	if r.CPULimit > 0 {
		quota, period := max(int64(r.CPULimit)*cpuPeriod/1000, 1000), uint64(cpuPeriod)
		cpu.Quota, cpu.Period = &quota, &period
	}
	to.CPU = cpu
	if r.Pids > 0 {
		most := int64(r.Pids)
		to.Pids = &specs.LinuxPids{Limit: &most}
	}
}

// swapLimited reports whether the kernel can limit swap: version 2 of cgroups always takes a limit, version 1 only if
// it counts swap.
func swapLimited() bool {
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	_, v1 := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return v2 == nil || v1 == nil
}

// Capabilities returns the full names of capabilities.
func Capabilities(names []string) ([]string, error) {
	known := capability.Known()
	full := make([]string, 0, len(names))
	for _, name := range names {
		name = "CAP_" + strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		if !slices.Contains(known, name) {
			return nil, unsupported("capabilities", fmt.Sprintf("%q is not a capability", name))
		}
		full = append(full, name)
	}
	return full, nil
}
