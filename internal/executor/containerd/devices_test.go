package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/logs"
)

// charDevice makes a file for a device of the kernel, as a driver would. The device must exist and must not be one that
// every container has.
func charDevice(t *testing.T, path, of string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(of, &st); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o660, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, 0, 4242), os.Chmod(path, 0o660)); err != nil {
		t.Fatal(err)
	}
}

// A container can open its own device and no other, not even through a device file that it makes itself, whatever its
// user. Edits of a CDI specification are applied.
func TestDevices(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	charDevice(t, filepath.Join(dir, "given"), "/dev/loop-control")
	charDevice(t, filepath.Join(dir, "other"), "/dev/btrfs-control")
	var other unix.Stat_t
	if err := unix.Stat("/dev/btrfs-control", &other); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [{"name": "0", "containerEdits": {
		"deviceNodes": [{"path": "/dev/of-cdi", "hostPath": %q}], "env": ["FROM_CDI=yes"]}}]}`, filepath.Join(dir, "given"))
	if err := os.WriteFile(filepath.Join(dir, "example.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	ex := n.life(t, func(c *containerd.Config) { c.CDIDirs = []string{dir} })
	probe := fmt.Sprintf(`for f in /dev/mine /dev/of-cdi /dev/other; do test -e $f && (exec 3<$f) 2>/dev/null && echo $f; done; mknod /tmp/other c %d %d && echo file && (exec 3</tmp/other) 2>/dev/null && echo made; echo "cdi $FROM_CDI"; true`,
		unix.Major(other.Rdev), unix.Minor(other.Rdev))
	given := []executor.DeviceNode{{Host: filepath.Join(dir, "given"), Path: "/dev/mine"}}
	for name, c := range map[string]struct {
		change func(*executor.Spec)
		want   string
	}{
		"none": {func(*executor.Spec) {}, "file\ncdi \n"},
		"one":  {func(s *executor.Spec) { s.Devices = given }, "/dev/mine\nfile\ncdi \n"},
		"of another group": {func(s *executor.Spec) {
			s.Devices, s.Container.User = given, "65534:65534"
		}, "/dev/mine\nfile\ncdi \n"},
		"by CDI": {func(s *executor.Spec) {
			s.CDI = []string{"example.com/gpu=0"}
		}, "/dev/of-cdi\nfile\ncdi yes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := executor.Spec{
				ID: executor.ID("devices-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")), Dir: t.TempDir(),
				LogDir: t.TempDir(),
				Container: cluster.Container{
					Image: busyboxImage,
					Command: []string{
						"/bin/busybox", "sh", "-c",
						strings.ReplaceAll(probe, "mknod", "busybox mknod"),
					},
					Capabilities: []string{"MKNOD"},
				},
			}
			c.change(&s)
			defer func() {
				if err := ex.Remove(context.WithoutCancel(t.Context()), s.ID); err != nil {
					t.Error(err)
				}
			}()
			if err := ex.Prepare(t.Context(), s, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := ex.Start(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
			exit, err := ex.Wait(t.Context(), s.ID)
			if err != nil || exit.Code != 0 {
				t.Fatalf("%+v %v: %s", exit, err, logs.Tail(s.LogDir, 1000))
			}
			if got := logs.Tail(s.LogDir, 1000); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	s := executor.Spec{
		ID: "devices-gone", Dir: t.TempDir(), LogDir: t.TempDir(),
		Container: cluster.Container{Image: busyboxImage, Command: []string{"/bin/true"}},
	}
	for field, change := range map[string]func(*executor.Spec){
		"/dev/berth-no-such": func(s *executor.Spec) {
			s.Devices = []executor.DeviceNode{{Host: "/dev/berth-no-such", Path: "/dev/x"}}
		},
		"example.com/gpu=no-one": func(s *executor.Spec) { s.CDI = []string{"example.com/gpu=no-one"} },
	} {
		gone := s
		change(&gone)
		if err := ex.Prepare(t.Context(), gone, nil); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("a device that is not there: got %v, want it to name %s", err, field)
		}
		if err := ex.Remove(t.Context(), gone.ID); err != nil {
			t.Error(err)
		}
	}
}
