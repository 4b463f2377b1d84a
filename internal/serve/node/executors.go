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
	"github.com/berthd/berth/internal/executor/process/embedded"
	"github.com/berthd/berth/internal/hinted"
)

// stopTimeout bounds the time to stop what `berth dev` or `berth agent` started.
const stopTimeout = 10 * time.Second

// Values of --executor in addition to the name of the process executor.
const (
	ExecutorAuto       = "auto"
	ExecutorContainerd = "containerd"
)

// ExecutorConfig selects the executors of a node.
type ExecutorConfig struct {
	Kind       string        // auto, containerd or process
	Socket     string        // of a containerd that is already running
	LoginsFile string        // file with the logins of registries
	MaxPulls   int           // maximum number of concurrent image pulls; 0 for the executor's default
	CDI        []string      // directories of device specifications; none for the usual ones
	MaxStarts  int           // maximum concurrent container creations, and starts; 0 for the executor's default
	User       string        // default user of programs without an image
	Isolation  string        // default isolation of programs without an image
	Egress     egress.Policy // for image pulls
	DataDir    string
	Log        *slog.Logger
	Notices    io.Writer // receives a line about missing requirements; nil for none
}

// Validate returns the first fault of the configuration.
func (c *ExecutorConfig) Validate() error {
	var wrong []error
	switch c.Kind {
	case ExecutorAuto, ExecutorContainerd, process.Name:
	default:
		wrong = append(wrong, fmt.Errorf("executor %q: want auto, containerd or process", c.Kind))
	}
	switch cluster.Isolation(c.Isolation) {
	case cluster.IsolationRequired, cluster.IsolationNone:
	default:
		wrong = append(wrong, fmt.Errorf("process-isolation %q: want required or none", c.Isolation))
	}
	if c.MaxStarts < 0 || c.MaxStarts > 1000 {
		wrong = append(wrong, fmt.Errorf("starts %d: want 1 to 1000, or 0 for the default", c.MaxStarts))
	}
	return errors.Join(wrong...)
}

// Executors are the executors of a node. The first one is the default.
type Executors struct {
	list       []executor.Executor
	retired    []executor.Executor // continue containers that an earlier agent started with them
	containerd *containerd.Executor
	daemon     *daemon.Daemon // nil unless Berth started containerd itself
	// logins returns the login for a registry; nil without logins.
	logins func(registry string) (user, secret string)
}

// OpenExecutors opens the executors that the machine supports, and prints a line about missing requirements.
func OpenExecutors(ctx context.Context, c ExecutorConfig) (*Executors, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Executors{}
	plain, err := e.openProcess(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.LoginsFile != "" {
		if e.logins, err = readRegistries(c.LoginsFile); err != nil {
			return nil, err
		}
	}
	if c.Kind != process.Name {
		lacks := c.missingRequirements()
		switch {
		case len(lacks) > 0 && c.Kind == ExecutorContainerd:
			return nil, &hinted.Error{
				Err:  fmt.Errorf("the containerd executor needs %s", strings.Join(lacks, " and ")),
				Hint: "Or run programs of this machine, without images: --executor process.",
			}
		case len(lacks) > 0 && c.Notices != nil:
			fmt.Fprintf(c.Notices, "berth: tasks run as plain processes, because containerd needs %s\n",
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

// openProcess returns the process executor if it is enabled. Otherwise it only continues existing processes.
func (e *Executors) openProcess(ctx context.Context, c ExecutorConfig) ([]executor.Executor, error) {
	x, err := process.New(process.Config{
		Dir: filepath.Join(c.DataDir, "process"), User: c.User, Isolation: cluster.Isolation(c.Isolation),
		Hidden:  []string{c.DataDir, "/run/berth", "/run/berth-secrets"},
		Program: embedded.Supervisor(),
	})
	if err != nil {
		return nil, err
	}
	if c.Kind == ExecutorContainerd {
		e.retired = append(e.retired, x)
		return nil, nil
	}
	if cluster.Isolation(c.Isolation) == cluster.IsolationRequired {
		fact, err := x.Probe(ctx)
		if err != nil {
			return nil, err
		}
		if fact.NoIsolation != "" {
			return nil, &hinted.Error{
				Err: fmt.Errorf("this machine cannot isolate programs without images: %s", fact.NoIsolation),
				Hint: "To run them without isolation, with the rights of the agent: --process-isolation " +
					"none. To run images only: --executor containerd.",
			}
		}
	}
	return []executor.Executor{x}, nil
}

// missingRequirements returns what the machine lacks for containerd.
func (c *ExecutorConfig) missingRequirements() []string {
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
		Pull:    containerd.PullConfig{MaxConcurrent: c.MaxPulls, Egress: c.Egress},
		CDIDirs: c.CDI,
		AtOnce:  c.MaxStarts,
	})
	if err != nil {
		return err
	}
	e.containerd = x
	e.list = append(e.list, x)
	return nil
}

// Close releases the executors. Containers continue.
func (e *Executors) Close() error {
	if e.containerd == nil {
		return nil
	}
	return e.containerd.Close()
}

// stopDaemon stops containerd if Berth started it and no containers are left.
func (e *Executors) stopDaemon(ctx context.Context) error {
	if e.containerd == nil {
		return nil
	}
	err := e.containerd.StopCollector(ctx)
	if e.daemon != nil {
		err = errors.Join(err, e.daemon.Stop(ctx))
	}
	return err
}

// Idle reports whether no executor has a container. It works after the end of ctx.
func (e *Executors) Idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, x := range slices.Concat(e.list, e.retired) {
		if held, err := x.List(ctx); err != nil || len(held) > 0 {
			return false
		}
	}
	return true
}

// StopAll calls stopDaemon with stopTimeout, also after the end of ctx.
func (e *Executors) StopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return e.stopDaemon(ctx)
}
