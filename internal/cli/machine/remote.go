package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/ssh"
)

// remote runs setups of machines over SSH and shows their progress.
type remote struct {
	*session.Session
	access   accessFlags
	binaries []string
	parallel int
	timeout  time.Duration

	dryRun      bool // change nothing
	profileOnly bool // leave the agent alone
	client      *client.Client
	binaryOf    programs
}

func (r *remote) addFlags(f *pflag.FlagSet) {
	r.access.addFlags(f)
	f.StringArrayVar(&r.binaries, "binary", nil, "`FILE` with this version of berth for another architecture, as "+
		"arm64=FILE; may be given several times")
	f.IntVar(&r.parallel, "parallel", 16, "number of machines at a time")
	f.DurationVar(&r.timeout, "timeout", 2*time.Minute, "time until a started node must be ready")
}

func (r *remote) checkFlags(list *session.Faults) {
	if r.parallel < 1 || r.parallel > maxMachines {
		list.Add("--parallel %d: want 1 to %d", r.parallel, maxMachines)
	}
	if r.timeout <= 0 {
		list.Add("--timeout %s: want a positive duration", r.timeout)
	}
	list.AddError("--binary", r.binaryOf.parse(r.binaries))
	r.access.check(list)
}

// setupTask is one machine to set up.
type setupTask struct {
	machineAddress

	jump      []ssh.Target
	jumpTexts []string
	profile   *cluster.Profile
	servers   []string
}

// runAll sets machines up, some at a time. A failure of one does not stop the others.
func (r *remote) runAll(ctx context.Context, all []setupTask, to bootstrap.Control) ([]*bootstrap.Result, error) {
	auth, keys, err := r.access.open(r.Session)
	if err != nil {
		return nil, err
	}
	view := newProgress(r.Session, len(all))
	results := make([]*bootstrap.Result, len(all))
	group := errgroup.Group{}
	group.SetLimit(r.parallel)
	for i, t := range all {
		group.Go(func() error {
			c := bootstrap.Config{
				Servers: t.servers, Profile: t.profile, Binary: &r.binaryOf, SudoPassword: r.access.sudoPassword,
				DryRun: r.dryRun, ProfileOnly: r.profileOnly, ReadyLimit: r.timeout, Control: to,
				Progress: view.event, Log: slog.New(slog.DiscardHandler),
			}
			conn := ssh.New(ssh.Config{Target: t.target, Jump: t.jump, Auth: auth, Keys: keys})
			results[i] = bootstrap.Add(ctx, c, bootstrap.Machine{Name: t.name, Conn: conn, Jump: t.jumpTexts})
			view.ended(results[i])
			return nil
		})
	}
	_ = group.Wait() // no function fails
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, nil
}

// programs finds the program for an architecture: this one, or those of flags.
type programs struct {
	files map[string]string
	open  map[string]*bootstrap.Program
}

// parse reads "ARCH=FILE" and opens the files, so that all machines share them.
func (p *programs) parse(texts []string) error {
	p.files, p.open = map[string]string{}, map[string]*bootstrap.Program{}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	p.files[ownArch()] = own
	var errs []error
	for _, t := range texts {
		arch, file, ok := strings.Cut(t, "=")
		if !ok || file == "" || !slices.Contains([]string{"amd64", "arm64"}, arch) {
			errs = append(errs, fmt.Errorf("%q: want amd64=FILE or arm64=FILE", t))
			continue
		}
		p.files[arch] = file
	}
	for arch, file := range p.files { // order-free: a map is filled
		if p.open[arch], err = bootstrap.OpenProgram(file); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// For is part of bootstrap.Binary.
func (p *programs) For(arch string) (*bootstrap.Program, error) {
	if program := p.open[arch]; program != nil {
		return program, nil
	}
	return nil, fmt.Errorf("the machine is of the architecture %s, and this program is not: give its build with "+
		"--binary %s=FILE", arch, arch)
}
