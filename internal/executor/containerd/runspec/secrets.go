package runspec

import (
	"context"
	"debug/elf"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// Paths in a container that gets variables from secrets: the launcher and the variables, in the memory file system that
// is its /dev.
const (
	launcherPath  = "/dev/.berth/run"
	variablesPath = "/dev/.berth/env"
)

// secrets mounts the folders of secrets and of rendered files. If the container gets variables from secrets, berth
// itself starts the program: containerd stores the description of a container with all its variables on disk, so these
// variables come from a file in memory. It must follow the options that set the user and the program.
func (b *Builder) secrets(spec *executor.Spec) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if len(spec.Secrets) == 0 && spec.SecretEnv == "" && len(spec.Rendered) == 0 {
			return nil
		}
		owned := slices.Concat(spec.Secrets, spec.Rendered)
		if err := executor.OwnSecrets(owned, spec.SecretEnv, int(s.Process.User.UID),
			int(s.Process.User.GID)); err != nil {
			return err
		}
		for _, m := range spec.Secrets {
			s.Mounts = append(s.Mounts, hidden(m.Source, m.Path, "noexec"))
		}
		for _, m := range spec.Rendered {
			s.Mounts = append(s.Mounts, hidden(m.Source, m.Path))
		}
		if spec.SecretEnv == "" {
			return nil
		}
		if err := static(b.Launcher); err != nil {
			return unsupported("secrets: env", err.Error())
		}
		s.Mounts = append(s.Mounts, hidden(b.Launcher, launcherPath),
			hidden(spec.SecretEnv, variablesPath, "noexec"))
		s.Process.Args = Launched(s.Process.Args)
		return nil
	}
}

// Launched returns the arguments by which a program is begun with variables of secrets.
func Launched(args []string) []string {
	return slices.Concat([]string{launcherPath, outlive.BecomeSubcommand, variablesPath}, args)
}

// IsLaunched reports whether the launcher started a container's program. It then starts further commands, too.
func IsLaunched(p *specs.Process) bool {
	return len(p.Args) > 0 && p.Args[0] == launcherPath
}

func hidden(source, path string, options ...string) specs.Mount {
	m := bind(source, path, true)
	m.Options = append(m.Options, append([]string{"nosuid", "nodev"}, options...)...)
	return m
}

// static returns nil for a program that runs in containers without any library.
func static(name string) error {
	f, err := elf.Open(name)
	if err != nil {
		return fmt.Errorf("inspect %s: %w", name, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked to libraries that containers do not have: it has to be built "+
				"with CGO_ENABLED=0", name)
		}
	}
	return nil
}
