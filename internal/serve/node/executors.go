package node

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
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/executor/containerd/daemon"
	"github.com/berthd/berth/internal/executor/process"
	"github.com/berthd/berth/internal/hinted"
)

// stopTime is how long `berth dev` and `berth agent` wait at their end for what they started.
const stopTime = 10 * time.Second

// Values of --executor beside the name of the process executor.
const (
	ExecutorAuto       = "auto"
	ExecutorContainerd = "containerd"
)

// ExecutorConfig says which executors a node has.
type ExecutorConfig struct {
	Kind    string        // auto, containerd or process
	Socket  string        // of a containerd that runs already
	Logins  string        // file with the logins of registries
	Pulls   int           // images that are pulled at a time; 0 is the executor's own default
	CDI     []string      // folders with specifications of devices; none for the usual ones
	Starts  int           // containers that are created at a time, and started; 0 is the executor's own default
	User    string        // of plain programs that name none
	Apart   string        // isolation of plain programs that name none
	Egress  egress.Policy // for pulls of images
	DataDir string
	Log     *slog.Logger
	Say     io.Writer // told in one line what the machine lacks; nil for nobody
}

// Validate returns what is wrong with the flags.
func (c *ExecutorConfig) Validate() error {
	var wrong []error
	switch c.Kind {
	case ExecutorAuto, ExecutorContainerd, process.Name:
	default:
		wrong = append(wrong, fmt.Errorf("executor %q: want auto, containerd or process", c.Kind))
	}
	switch cluster.Isolation(c.Apart) {
	case cluster.IsolationRequired, cluster.IsolationNone:
	default:
		wrong = append(wrong, fmt.Errorf("process-isolation %q: want required or none", c.Apart))
	}
	if c.Starts < 0 || c.Starts > 1000 {
		wrong = append(wrong, fmt.Errorf("starts %d: want 1 to 1000, or 0 for the default", c.Starts))
	}
	return errors.Join(wrong...)
}

// Executors are the executors of a node, the default first.
type Executors struct {
	list       []executor.Executor
	retired    []executor.Executor // what an earlier agent of the node began with them goes on
	containerd *containerd.Executor
	daemon     *daemon.Daemon // nil unless it is Berth's own
	// logins returns what a registry wants; nil for nothing.
	logins func(registry string) (user, secret string)
}

// OpenExecutors makes the executors that the machine can have, and says in one line what it lacks.
func OpenExecutors(ctx context.Context, c ExecutorConfig) (*Executors, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Executors{}
	plain, err := e.openProcess(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.Logins != "" {
		if e.logins, err = readRegistries(c.Logins); err != nil {
			return nil, err
		}
	}
	if c.Kind != process.Name {
		lacks := c.lacks()
		switch {
		case len(lacks) > 0 && c.Kind == ExecutorContainerd:
			return nil, &hinted.Error{
				Err:  fmt.Errorf("the containerd executor needs %s", strings.Join(lacks, " and ")),
				Hint: "To run programs of this machine, without images: --executor process.",
			}
		case len(lacks) > 0 && c.Say != nil:
			fmt.Fprintf(c.Say, "berth: no containers here, tasks run as plain processes: containerd needs %s\n",
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
func (e *Executors) openProcess(ctx context.Context, c ExecutorConfig) ([]executor.Executor, error) {
	x, err := process.New(process.Config{
		Dir: filepath.Join(c.DataDir, "process"), User: c.User, Isolation: cluster.Isolation(c.Apart),
		Hidden: []string{c.DataDir, "/run/berth", "/run/berth-secrets"},
	})
	if err != nil {
		return nil, err
	}
	if c.Kind == ExecutorContainerd {
		e.retired = append(e.retired, x)
		return nil, nil
	}
	if cluster.Isolation(c.Apart) == cluster.IsolationRequired {
		fact, err := x.Probe(ctx)
		if err != nil {
			return nil, err
		}
		if fact.NoIsolation != "" {
			return nil, &hinted.Error{
				Err: fmt.Errorf("programs without images cannot be kept apart on this machine: %s", fact.NoIsolation),
				Hint: "To run them all the same, with the rights of the agent: --process-isolation none. To run " +
					"images only: --executor containerd.",
			}
		}
	}
	return []executor.Executor{x}, nil
}

// lacks returns what the machine would need for containerd.
func (c *ExecutorConfig) lacks() []string {
	var lacks []string
	if os.Geteuid() != 0 {
		lacks = append(lacks, "root")
	}
	programs := []string{"containerd", "runc"}
	if c.Socket != "" {
		programs = nil
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			lacks = append(lacks, p+" (apt-get install "+p+")")
		}
	}
	return lacks
}

func (e *Executors) openContainerd(ctx context.Context, c ExecutorConfig) error {
	address := c.Socket
	if address == "" {
		d, err := daemon.Launch(ctx, daemon.Config{Dir: filepath.Join(c.DataDir, "containerd")})
		if err != nil {
			return err
		}
		e.daemon, address = d, d.Address
	}
	x, err := containerd.New(containerd.Config{
		Address: address,
		Dir:     filepath.Join(c.DataDir, "collector"),
		Logger:  c.Log,
		Pull:    containerd.PullConfig{MaxConcurrent: c.Pulls, Egress: c.Egress},
		CDIDirs: c.CDI,
		AtOnce:  c.Starts,
	})
	if err != nil {
		return err
	}
	e.containerd = x
	e.list = append(e.list, x)
	return nil
}

// Close lets go of the executors. Containers, and what they need, go on.
func (e *Executors) Close() error {
	if e.containerd == nil {
		return nil
	}
	return e.containerd.Close()
}

// stop ends what Berth started for containers, once there are none.
func (e *Executors) stop(ctx context.Context) error {
	if e.containerd == nil {
		return nil
	}
	err := e.containerd.StopCollector(ctx)
	if e.daemon != nil {
		err = errors.Join(err, e.daemon.Stop(ctx))
	}
	return err
}

// Idle reports whether no executor holds a container. It works after ctx has ended.
func (e *Executors) Idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	for _, x := range slices.Concat(e.list, e.retired) {
		if held, err := x.List(ctx); err != nil || len(held) > 0 {
			return false
		}
	}
	return true
}

// StopAll is stop within stopTime, also after ctx has ended.
func (e *Executors) StopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return e.stop(ctx)
}
