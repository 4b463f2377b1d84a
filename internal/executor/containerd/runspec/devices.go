package runspec

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/berthd/berth/internal/executor"
)

// devices gives the container its devices: the files with the leave to use them, and what CDI specifications say. All
// others it may not open, even if it made files for them.
func (b *Builder) devices(spec *executor.Spec) oci.SpecOpts {
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
		if len(b.CDIDirs) > 0 {
			options = append(options, cdi.WithSpecDirs(b.CDIDirs...))
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
