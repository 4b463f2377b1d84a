package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	capability "github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// cpuPeriod is the period of a CPU limit in microseconds.
const cpuPeriod = 100_000

// Prepare implements executor.Executor.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(string)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if progress == nil {
		progress = func(string) {}
	}
	if !validID(spec.ID) {
		return fmt.Errorf("%q is not the id of a container", spec.ID)
	}
	if spec.Container.Image == "" {
		return unsupported("image", "the containerd executor runs images only")
	}
	if len(spec.Copies) > 0 {
		return unsupported("artifacts", "in a container of an image the path of each begins with /")
	}
	caps, err := capabilities(spec.Container.Capabilities)
	if err != nil {
		return err
	}
	ctx = e.in(ctx)
	unlock, err := e.locks.Lock(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if done, err := e.preparedBefore(ctx, &spec); done || err != nil {
		return err
	}
	img, release, err := e.image(ctx, &spec, progress)
	if err != nil {
		return err
	}
	defer release() // from then on its container keeps it
	done, err := takeSlot(ctx, e.creating, func() { progress("waiting until fewer containers are being created") })
	if err != nil {
		return err
	}
	defer done()
	progress("creating the container")
	err = e.create(ctx, &spec, img, caps)
	for begin := time.Now(); conflictsWithEarlier(&spec, err) && time.Since(begin) < killLimit; {
		if err := e.clear(ctx, &spec); err != nil {
			return err
		}
		if err := outlive.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		err = e.create(ctx, &spec, img, caps)
	}
	return err
}

// conflictsWithEarlier reports whether a creation may have failed only because of an earlier creation that an agent's
// death interrupted. Either its container appeared meanwhile, or containerd's delayed cleanup of the same name removed
// a part of the new task. The errors of both cases have no type.
func conflictsWithEarlier(spec *executor.Spec, err error) bool {
	if err == nil || errors.Is(err, executor.ErrUnavailable) {
		return false
	}
	_, again := os.Stat(filepath.Join(spec.Dir, againFile))
	var task taskFault
	return isA(err, errdefs.IsAlreadyExists) || again == nil && errors.As(err, &task)
}

// taskFault is why a task could not be created.
type taskFault struct{ error }

func (f taskFault) Unwrap() error { return f.error }

// validID reports whether an id is one, which names files.
func validID(id executor.ID) bool {
	return id != "" && len(id) <= 76 && !strings.ContainsAny(string(id), "/\x00") && id[0] != '.'
}

func unsupported(field, why string) error {
	return fmt.Errorf("%s: %w: %s", field, executor.ErrUnsupported, why)
}

// preparedBefore reports whether the container is already prepared. It removes the remains of an interrupted Prepare.
func (e *Executor) preparedBefore(ctx context.Context, spec *executor.Spec) (bool, error) {
	if _, started := (record{dir: spec.Dir}).intent(); started {
		return false, fmt.Errorf("prepare: %w", executor.ErrStarted)
	}
	if _, err := e.load(ctx, spec.ID); err != nil {
		if err == executor.ErrNotFound { //nolint:errorlint // load returns it bare
			err = nil
		}
		return false, err
	}
	t, err := e.task(ctx, spec.ID)
	if err != nil {
		return false, err
	}
	if t != nil && t.Status == tasktypes.Status_CREATED {
		return true, nil
	}
	return false, e.clear(ctx, spec)
}

// clear removes what an earlier Prepare left half done.
func (e *Executor) clear(ctx context.Context, spec *executor.Spec) error {
	if err := e.remove(ctx, spec.ID); err != nil {
		return err
	}
	// The shim of the interrupted creation may still appear, next to the new one. Remove will look for it.
	if err := os.WriteFile(filepath.Join(spec.Dir, againFile), nil, 0o600); err != nil {
		return fmt.Errorf("note the second try: %w", err)
	}
	return nil
}

// makePipes makes the named pipes for the output.
func makePipes(spec *executor.Spec) error {
	for _, name := range []string{stdoutFile, stderrFile} {
		if err := syscall.Mkfifo(filepath.Join(spec.Dir, name), 0o600); err != nil && !os.IsExist(err) {
			return fmt.Errorf("make pipe: %w", err)
		}
	}
	return nil
}

// create makes the pipes, the container and its task.
func (e *Executor) create(ctx context.Context, spec *executor.Spec, img client.Image, caps []string) error {
	if err := makePipes(spec); err != nil {
		return err
	}
	if err := e.collector.attach(ctx,
		attachment{
			ID: spec.ID, Dir: spec.Dir, LogDir: spec.LogDir, Secrets: spec.Secrets,
			SecretEnv: spec.SecretEnv,
		}); err != nil {
		return err
	}
	cfg, err := e.config(ctx, img)
	if err != nil {
		return err
	}
	labels := map[string]string{labelDir: spec.Dir, labelID: string(spec.ID), labelImage: img.Target().Digest.String()}
	for k, v := range spec.Labels {
		labels[labelPrefix+k] = v
	}
	opts := []client.NewContainerOpts{
		client.WithImage(img), client.WithContainerLabels(labels),
		client.WithNewSnapshot(nameOf(spec.ID), img),
		client.WithNewSpec(e.specOf(spec, cfg, caps)...),
	}
	opts = slices.Insert(opts, 0, client.WithSnapshotter(e.snapshotter()))
	c, err := e.client.NewContainer(ctx, nameOf(spec.ID), opts...)
	if err != nil {
		return failed(ctx, "create container", err)
	}
	pipes := cio.NewFIFOSet(cio.Config{
		Stdout: filepath.Join(spec.Dir, stdoutFile), Stderr: filepath.Join(spec.Dir, stderrFile),
	}, nil)
	t, err := c.NewTask(ctx, func(string) (cio.IO, error) { return pipeIO{pipes}, nil })
	if err != nil {
		return taskFault{failed(ctx, "set up the program", err)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prepared[spec.ID] = prepared{spec.Dir, processOf(int(t.Pid()))}
	return nil
}

// specOf returns what makes containerd's own specification that of a container.
func (e *Executor) specOf(spec *executor.Spec, cfg ocispec.ImageConfig, caps []string) []oci.SpecOpts {
	return []oci.SpecOpts{
		process(spec, cfg), user(spec, cfg), e.files(spec), e.secrets(spec), mounts(spec), e.isolate(spec, caps),
		e.seccomp(), e.devices(spec),
	}
}

// pipeIO passes the paths of the pipes to containerd. The collector has their other ends.
type pipeIO struct{ set *cio.FIFOSet }

func (p pipeIO) Config() cio.Config { return p.set.Config }
func (pipeIO) Cancel()              {}
func (pipeIO) Wait()                {}
func (pipeIO) Close() error         { return nil }

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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
		s.Process.Env = override(override(s.Process.Env, cfg.Env), spec.Env)
		s.Process.Cwd = "/"
		for _, dir := range []string{cfg.WorkingDir, c.Dir} {
			if dir != "" {
				s.Process.Cwd = dir
			}
		}
		return nil
	}
}

// override returns env with the values of over. Each name occurs once, at its first position.
func override(env, over []string) []string {
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
func (e *Executor) files(spec *executor.Spec) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		dir := filepath.Join(spec.Dir, filesDir)
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
func (e *Executor) isolate(spec *executor.Spec, caps []string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		// The network is the node's unless it is given, and so is its name.
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
			return n.Type == specs.NetworkNamespace || n.Type == specs.UTSNamespace
		})
		if spec.Network != "" {
			s.Linux.Namespaces = append(s.Linux.Namespaces,
				specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: spec.Network})
		}
		s.Linux.CgroupsPath = filepath.Join(e.cfg.CgroupParent, nameOf(spec.ID))
		s.Root.Readonly = spec.Container.ReadOnlyRoot
		s.Process.NoNewPrivileges = true
		s.Process.Rlimits = nil // those of containerd: to raise one takes a privilege that it may lack
		s.Process.Capabilities = &specs.LinuxCapabilities{
			Bounding: caps, Permitted: caps, Effective: caps, Inheritable: caps, Ambient: caps,
		}
		limit(s.Linux.Resources, spec.Container.Resources)
		s.Linux.Resources.CPU.Cpus, s.Linux.Resources.CPU.Mems = spec.CPUs, spec.NumaNodes
		return nil
	}
}

// seccomp refuses what containerd's default profile refuses, given the capabilities.
func (e *Executor) seccomp() oci.SpecOpts {
	if e.cfg.NoSeccomp {
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

// capabilities returns the full names of capabilities.
func capabilities(names []string) ([]string, error) {
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
