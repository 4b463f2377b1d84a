package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/ssh"
	"github.com/berthd/berth/internal/wording"
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
	standalone  bool // the machines need no servers
	client      *client.Client
	binaryOf    programs

	auth *ssh.Auth
	keys *ssh.HostKeys
	view *progress
}

// addFlags adds the flags of all commands.
func (r *remote) addFlags(f *pflag.FlagSet) {
	r.access.addFlags(f)
	f.StringArrayVar(&r.binaries, "binary", nil, "`FILE` with this version of berth for another architecture, as "+
		"arm64=FILE; may be given several times")
}

func (r *remote) addParallelFlag(f *pflag.FlagSet) {
	f.IntVar(&r.parallel, "parallel", 16, "number of machines at a time")
}

// addTimeoutFlag adds the flag of commands that start agents.
func (r *remote) addTimeoutFlag(f *pflag.FlagSet, limit time.Duration) {
	f.DurationVar(&r.timeout, "timeout", limit, "time until a started node must be ready")
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

	jump    []ssh.Target
	profile *cluster.Profile
	servers []string
	// dial, unless empty, is where servers dial the agent, which listens on listen.
	dial, listen string
}

// runAll sets machines up, some at a time. A failure of one does not stop the others.
func (r *remote) runAll(ctx context.Context, all []setupTask, to bootstrap.Control) ([]*bootstrap.Result, error) {
	if err := r.open(len(all)); err != nil {
		return nil, err
	}
	return r.forEach(ctx, all, r.parallel, func(t *setupTask, m bootstrap.Machine) *bootstrap.Result {
		c := r.config(to)
		c.Servers, c.Profile, c.ProfileOnly = t.servers, t.profile, r.profileOnly
		c.Standalone = r.standalone
		return bootstrap.Add(ctx, c, m)
	})
}

// open reads the keys and begins to show the progress of a number of machines.
func (r *remote) open(machines int) (err error) {
	r.auth, r.keys, err = r.access.open(r.Session)
	r.view = newProgress(r.Session, machines)
	return err
}

// config returns what all machines share.
func (r *remote) config(to bootstrap.Control) bootstrap.Config {
	return bootstrap.Config{
		Binary: &r.binaryOf, SudoPassword: r.access.sudoPassword, DryRun: r.dryRun, ReadyLimit: r.timeout, Control: to,
		Progress: r.view.event, Log: slog.New(slog.DiscardHandler),
	}
}

// forEach runs a function for machines, some at a time.
func (r *remote) forEach(ctx context.Context, all []setupTask, parallel int,
	run func(*setupTask, bootstrap.Machine) *bootstrap.Result,
) ([]*bootstrap.Result, error) {
	results := make([]*bootstrap.Result, len(all))
	group := errgroup.Group{}
	group.SetLimit(parallel)
	for i, t := range all {
		group.Go(func() error {
			conn := ssh.New(ssh.Config{Target: t.target, Jump: t.jump, Auth: r.auth, Keys: r.keys})
			var jump []string // with their users, since others may use them too
			for _, j := range t.jump {
				jump = append(jump, j.String())
			}
			results[i] = run(&t, bootstrap.Machine{
				Name: t.name, Conn: conn, Jump: jump, Dial: t.dial, Listen: t.listen,
			})
			r.view.ended(results[i])
			return nil
		})
	}
	_ = group.Wait() // no function fails
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, nil
}

// findNodes returns the named nodes, or all that fit. A named node that does not fit is an error.
func (r *remote) findNodes(ctx context.Context, names []string, fits func(*api.NodeView) error) (
	found []api.NodeView, err error,
) {
	all, err := session.ListNodes(ctx, r.client, "")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(n api.NodeView) bool { return fits(&n) != nil }), nil
	}
	var errs []error
	for _, name := range names {
		i := slices.IndexFunc(all, func(n api.NodeView) bool { return n.Name == name })
		if i < 0 {
			var known []string
			for _, n := range all {
				known = append(known, n.Name)
			}
			errs = append(errs, session.UnknownError(wording.KindNode, name, known))
			continue
		}
		errs = append(errs, fits(&all[i]))
		found = append(found, all[i])
	}
	return found, errors.Join(errs...)
}

// overNodes runs a command for the named nodes that were added, or for all that fit, and sums up. Without any it prints
// a sentence.
func (r *remote) overNodes(ctx context.Context, names []string, fits func(*api.NodeView) error, none string,
	run func(nodes []api.NodeView, tasks []setupTask) ([]*bootstrap.Result, error),
) (err error) {
	if r.client, err = r.Connect(); err != nil {
		return err
	}
	nodes, err := r.findNodes(ctx, names, fits)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		r.Printf("%s", none)
		return nil
	}
	tasks, err := r.tasksOf(nodes)
	if err != nil {
		return err
	}
	results, err := run(nodes, tasks)
	if err != nil {
		return err
	}
	return r.finish(results)
}

// tasksOf returns the machines of nodes, as they were added.
func (r *remote) tasksOf(nodes []api.NodeView) (all []setupTask, err error) {
	var errs []error
	for _, n := range nodes {
		s := n.Setup
		t := setupTask{machineAddress: machineAddress{name: n.Name}}
		if t.target, err = ssh.ParseTarget(s.Address, ownUser()); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		}
		if len(r.access.jumps) > 0 {
			t.jump = r.access.jumps
		} else {
			for _, text := range s.Jump {
				jump, err := ssh.ParseTarget(text, ownUser())
				errs = append(errs, err)
				t.jump = append(t.jump, jump)
			}
		}
		all = append(all, t)
	}
	return all, errors.Join(errs...)
}

// changeSetup changes the recorded setup of a node that was added, if the function reports a change. It writes nothing
// for a node that was added again since it was read.
func (r *remote) changeSetup(ctx context.Context, n *api.NodeView, change func(*cluster.HostSetup) bool) error {
	_, err := writeSetup(ctx, r.client, n.Name, func(is *api.NodeView) *api.NodeSetupRequest {
		if is.Setup == nil || !is.Setup.At.Equal(n.Setup.At) {
			return nil
		}
		next := *is.Setup
		if !change(&next) {
			return nil
		}
		return &api.NodeSetupRequest{Setup: next}
	})
	return err
}

// writeSetup records how a node was added. The function returns what to write for the present node, nil for nothing.
// It is called again if others change the node meanwhile, so no command undoes what another one has recorded. The node
// may be unknown, and then has no name. The result is the node before the write.
func writeSetup(ctx context.Context, c *client.Client, node string, next func(is *api.NodeView) *api.NodeSetupRequest) (
	is api.NodeView, err error,
) {
	const tries = 5
	for try := 1; ; try++ {
		is, err = c.Node(ctx, node)
		if err != nil && client.StatusOf(err) != http.StatusNotFound {
			return is, fmt.Errorf("change the setup of node %s: %w", node, err)
		}
		ask := next(&is)
		if ask == nil {
			return is, nil
		}
		_, err = c.SetupNode(ctx, node, *ask, client.Condition{Revision: is.Revision})
		if client.StatusOf(err) != http.StatusPreconditionFailed || try == tries {
			return is, err
		}
	}
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
