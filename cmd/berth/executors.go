package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/executor/process"
)

// Values of --executor beside the name of the process executor.
const (
	executorAuto       = "auto"
	executorContainerd = "containerd"
)

// executorConfig says which executors a node has.
type executorConfig struct {
	kind    string        // auto, containerd or process
	socket  string        // of a containerd that runs already
	logins  string        // file with the logins of registries
	pulls   int           // images that are pulled at a time; 0 is the executor's own default
	cdi     []string      // folders with specifications of devices; none for the usual ones
	starts  int           // containers that are created at a time, and started; 0 is the executor's own default
	user    string        // of plain programs that name none
	apart   string        // isolation of plain programs that name none
	egress  egress.Policy // for pulls of images
	dataDir string
	log     *slog.Logger
	say     io.Writer // told in one line what the machine lacks; nil for nobody
}

func (c *executorConfig) flags(cmd *cobra.Command, local bool) {
	kind, apart := executorContainerd, cluster.IsolationRequired
	user := "nobody, or with --process-isolation none the agent's own"
	if local {
		kind, apart, user = executorAuto, cluster.IsolationNone, "who runs this"
	}
	cmd.Flags().StringVar(&c.kind, "executor", kind,
		"what runs the containers: containerd (those with an image), process (programs of this machine) or "+
			"auto (both, where the machine can)")
	cmd.Flags().StringVar(&c.apart, "process-isolation", string(apart),
		"`ISOLATION` of programs without an image that name none: required, or none, which lets them see "+
			"and do what their user can on this machine")
	cmd.Flags().StringVar(&c.socket, "containerd", "", "socket of a containerd to use; default: one of Berth's own")
	cmd.Flags().IntVar(&c.starts, "starts", containerd.DefaultAtOnce,
		"how many containers of images are created at a time, and how many started; the others wait for their turn")
	cmd.Flags().StringVar(&c.user, "process-user", "",
		"`USER` (uid, uid:gid or a name) of programs without an image that name none; default "+user)
	cmd.Flags().StringVar(&c.logins, "registry-logins", "",
		"file with the logins of registries: {\"auths\": {\"registry.example\": {\"auth\": \"…\"}}}, mode 0600")
}

// validate returns what is wrong with the flags.
func (c *executorConfig) validate() error {
	var wrong []error
	switch c.kind {
	case executorAuto, executorContainerd, process.Name:
	default:
		wrong = append(wrong, fmt.Errorf("executor %q: want auto, containerd or process", c.kind))
	}
	switch cluster.Isolation(c.apart) {
	case cluster.IsolationRequired, cluster.IsolationNone:
	default:
		wrong = append(wrong, fmt.Errorf("process-isolation %q: want required or none", c.apart))
	}
	if c.starts < 0 || c.starts > 1000 {
		wrong = append(wrong, fmt.Errorf("starts %d: want 1 to 1000, or 0 for the default", c.starts))
	}
	return errors.Join(wrong...)
}

// runners are the executors of a node, the default first.
type runners struct {
	list       []executor.Executor
	retired    []executor.Executor // what an earlier agent of the node began with them goes on
	containerd *containerd.Executor
	daemon     *containerd.Daemon // nil unless it is Berth's own
	// logins returns what a registry wants; nil for nothing.
	logins func(registry string) (user, secret string)
}

// openExecutors makes the executors that the machine can have, and says in one line what it lacks.
func openExecutors(ctx context.Context, c executorConfig) (*runners, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	e := &runners{}
	plain, err := e.openProcess(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.logins != "" {
		if e.logins, err = readRegistries(c.logins); err != nil {
			return nil, err
		}
	}
	if c.kind != process.Name {
		lacks := c.lacks()
		switch {
		case len(lacks) > 0 && c.kind == executorContainerd:
			return nil, &hintedError{
				fmt.Errorf("the containerd executor needs %s", strings.Join(lacks, " and ")),
				"To run programs of this machine, without images: --executor process.",
			}
		case len(lacks) > 0 && c.say != nil:
			fmt.Fprintf(c.say, "berth: no containers here, tasks run as plain processes: containerd needs %s\n",
				strings.Join(lacks, " and "))
		case len(lacks) == 0:
			if err := e.openContainerd(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	e.list = append(e.list, plain...)
	return e, nil
}

// openProcess returns the executor of plain programs where it is enabled; elsewhere it only keeps what it began before.
func (e *runners) openProcess(ctx context.Context, c executorConfig) ([]executor.Executor, error) {
	x, err := process.New(process.Config{
		Dir: filepath.Join(c.dataDir, "process"), User: c.user, Isolation: cluster.Isolation(c.apart),
		Hidden: []string{c.dataDir, "/run/berth", "/run/berth-secrets"},
	})
	if err != nil {
		return nil, err
	}
	if c.kind == executorContainerd {
		e.retired = append(e.retired, x)
		return nil, nil
	}
	if cluster.Isolation(c.apart) == cluster.IsolationRequired {
		fact, err := x.Probe(ctx)
		if err != nil {
			return nil, err
		}
		if fact.NoIsolation != "" {
			return nil, &hintedError{
				fmt.Errorf("programs without images cannot be kept apart on this machine: %s", fact.NoIsolation),
				"To run them all the same, with the rights of the agent: --process-isolation none. To run " +
					"images only: --executor containerd.",
			}
		}
	}
	return []executor.Executor{x}, nil
}

// lacks returns what the machine would need for containerd.
func (c *executorConfig) lacks() []string {
	var lacks []string
	if os.Geteuid() != 0 {
		lacks = append(lacks, "root")
	}
	programs := []string{"containerd", "runc"}
	if c.socket != "" {
		programs = nil
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			lacks = append(lacks, p+" (apt-get install "+p+")")
		}
	}
	return lacks
}

func (e *runners) openContainerd(ctx context.Context, c executorConfig) error {
	address := c.socket
	if address == "" {
		d, err := containerd.Launch(ctx, containerd.LaunchConfig{Dir: filepath.Join(c.dataDir, "containerd")})
		if err != nil {
			return err
		}
		e.daemon, address = d, d.Address
	}
	x, err := containerd.New(containerd.Config{
		Address: address,
		Dir:     filepath.Join(c.dataDir, "collector"),
		Logger:  c.log,
		Pull:    containerd.PullConfig{Most: c.pulls, Egress: c.egress},
		CDIDirs: c.cdi,
		AtOnce:  c.starts,
	})
	if err != nil {
		return err
	}
	e.containerd = x
	e.list = append(e.list, x)
	return nil
}

// close lets go of the executors. Containers, and what they need, go on.
func (e *runners) close() error {
	if e.containerd == nil {
		return nil
	}
	return e.containerd.Close()
}

// stop ends what Berth started for containers, once there are none.
func (e *runners) stop(ctx context.Context) error {
	if e.containerd == nil {
		return nil
	}
	err := e.containerd.StopCollector(ctx)
	if e.daemon != nil {
		err = errors.Join(err, e.daemon.Stop(ctx))
	}
	return err
}

// idle reports whether no executor holds a container. It works after ctx has ended.
func (e *runners) idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	for _, x := range slices.Concat(e.list, e.retired) {
		if held, err := x.List(ctx); err != nil || len(held) > 0 {
			return false
		}
	}
	return true
}

// stopAll is stop within stopTime, also after ctx has ended.
func (e *runners) stopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return e.stop(ctx)
}
