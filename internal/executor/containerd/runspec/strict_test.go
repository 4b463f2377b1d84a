package runspec

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// generate returns the specification that a container gets.
func generate(t *testing.T, c cluster.Container) *oci.Spec {
	t.Helper()
	caps, err := Capabilities(c.Capabilities)
	if err != nil {
		t.Fatal(err)
	}
	spec := &executor.Spec{ID: "a", Dir: t.TempDir(), Container: c}
	ctx := namespaces.WithNamespace(t.Context(), "test")
	s, err := oci.GenerateSpec(ctx, nil, &containers.Container{ID: "a"},
		new(Builder).Options(spec, ocispec.ImageConfig{Cmd: []string{"run"}}, caps, "/berth/a")...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A container without requests has no capabilities and can gain none. It has the seccomp profile, namespaces of its own
// and no devices. Kernel files that reveal or change the machine are hidden or read-only.
func TestContainersAreStrictByDefault(t *testing.T) {
	t.Parallel()
	s := generate(t, cluster.Container{Name: "main", Image: "web:1"})
	if !s.Process.NoNewPrivileges {
		t.Error("it can gain privileges")
	}
	sets := s.Process.Capabilities
	for name, set := range map[string][]string{
		"bounding": sets.Bounding, "effective": sets.Effective, "permitted": sets.Permitted,
		"inheritable": sets.Inheritable, "ambient": sets.Ambient,
	} {
		if len(set) > 0 {
			t.Errorf("%s capabilities %q, want none", name, set)
		}
	}
	if p := s.Linux.Seccomp; p == nil || p.DefaultAction != specs.ActErrno {
		t.Errorf("the profile of system calls is %+v", p)
	} else if i := slices.IndexFunc(p.Syscalls, func(c specs.LinuxSyscall) bool {
		return slices.Contains(c.Names, "mount") && c.Action == specs.ActAllow
	}); i >= 0 {
		t.Error("it may mount")
	}
	for _, want := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.IPCNamespace, specs.MountNamespace} {
		if !slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
			return n.Type == want && n.Path == ""
		}) {
			t.Errorf("it has no %s namespace of its own: %+v", want, s.Linux.Namespaces)
		}
	}
	for _, want := range []string{"/proc/kcore", "/proc/keys", "/proc/acpi", "/sys/firmware"} {
		if !slices.Contains(s.Linux.MaskedPaths, want) {
			t.Errorf("it sees %s: hidden are %q", want, s.Linux.MaskedPaths)
		}
	}
	for _, want := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} {
		if !slices.Contains(s.Linux.ReadonlyPaths, want) {
			t.Errorf("it may write to %s: read-only are %q", want, s.Linux.ReadonlyPaths)
		}
	}
	if d := s.Linux.Resources.Devices; len(d) == 0 || d[0].Allow || d[0].Access != "rwm" || d[0].Type != "" {
		t.Errorf("the rules of devices begin with %+v, want that all are denied", d)
	}
	if i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool {
		return m.Destination == "/sys" && slices.Contains(m.Options, "ro")
	}); i < 0 {
		t.Error("/sys can be written to")
	}
	for _, m := range s.Mounts {
		if m.Type == "bind" && (m.Destination != "/etc/hosts" && m.Destination != "/etc/resolv.conf" ||
			!slices.Contains(m.Options, "ro")) {
			t.Errorf("it sees %+v of the node", m)
		}
	}
}

// A container gets what it requests, and no more.
func TestContainersGetTheirDevices(t *testing.T) {
	t.Parallel()
	s := generate(t, cluster.Container{
		Name: "main", Image: "web:1", ReadOnlyRoot: true, User: "1000:1000",
		Capabilities: []string{"NET_BIND_SERVICE"},
	})
	if got := s.Process.Capabilities.Bounding; !slices.Equal(got, []string{"CAP_NET_BIND_SERVICE"}) {
		t.Errorf("capabilities %q", got)
	}
	if !s.Root.Readonly || s.Process.User.UID != 1000 || s.Process.User.GID != 1000 || !s.Process.NoNewPrivileges {
		t.Errorf("read-only %v, user %+v, no new privileges %v", s.Root.Readonly, s.Process.User,
			s.Process.NoNewPrivileges)
	}
}
