package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/berthd/berth/internal/executor"
)

// devices gives the container its devices: the files with the leave to use them, and what CDI specifications say. All
// others it may not open, even if it made files for them.
func (sb *specBuilder) devices(spec *executor.Spec) oci.SpecOpts {
	return func(ctx context.Context, cl oci.Client, c *containers.Container, s *oci.Spec) error {
		for _, d := range spec.Devices {
			host, err := filepath.EvalSymlinks(d.Host)
			if err == nil {
				err = oci.WithDevices(host, d.Path, "rwm")(ctx, cl, c, s)
			}
			if err != nil {
				return fmt.Errorf("devices: %s: %w", d.Host, err)
			}
			joinGroup(s, host)
		}
		if len(spec.CDI) == 0 {
			return nil
		}
		var options []cdi.Option
		if len(sb.cfg.CDIDirs) > 0 {
			options = append(options, cdi.WithSpecDirs(sb.cfg.CDIDirs...))
		}
		cache, err := cdi.NewCache(append(options, cdi.WithAutoRefresh(false))...)
		if err == nil {
			_, err = cache.InjectDevices(s, spec.CDI...)
		}
		if err != nil {
			return fmt.Errorf("devices: %s: %w", strings.Join(spec.CDI, ", "), err)
		}
		return nil
	}
}

// joinGroup puts the container's user into the group that may use a device, where that is not everybody: it was given
// to the container whatever user that runs as.
func joinGroup(s *oci.Spec, path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeDevice == 0 {
		return
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Gid == 0 || info.Mode().Perm()&0o060 == 0 || slices.Contains(s.Process.User.AdditionalGids, st.Gid) {
		return
	}
	s.Process.User.AdditionalGids = append(s.Process.User.AdditionalGids, st.Gid)
}

// Pin implements executor.Pinner.
func (e *Executor) Pin(ctx context.Context, id executor.ID, cpus string) error {
	ctx = e.in(ctx)
	c, err := e.client.LoadContainer(ctx, nameOf(id))
	if err == nil {
		var t client.Task
		if t, err = c.Task(ctx, nil); err == nil {
			err = t.Update(ctx, client.WithResources(&specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: cpus}}))
		}
	}
	if err == nil || isA(err, errdefs.IsNotFound) {
		return nil
	}
	if t, lookErr := e.task(ctx, id); lookErr == nil && t == nil || errors.Is(err, syscall.ESRCH) {
		return nil // it ended meanwhile
	}
	return failed(ctx, "move to CPUs "+cpus, err)
}
