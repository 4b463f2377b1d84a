package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/process"
)

// executorConfig says which executors a node has.
type executorConfig struct {
	kind    string // auto, containerd or process
	socket  string // of a containerd that runs already
	dataDir string
	log     *slog.Logger
	say     io.Writer // told in one line what the machine lacks; may be nil
}

func (c *executorConfig) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kind, "executor", "auto", "auto, containerd or process: what runs the containers")
	cmd.Flags().StringVar(&c.socket, "containerd", "", "socket of a containerd to use; default: one of Berth's own")
}

// openExecutors returns the node's executors, the default first.
func openExecutors(_ context.Context, c executorConfig) ([]executor.Executor, error) {
	if c.log == nil {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	p, err := process.New(process.Config{Dir: filepath.Join(c.dataDir, "process")})
	if err != nil {
		return nil, err
	}
	if c.kind == "process" {
		return []executor.Executor{p}, nil
	}
	return nil, fmt.Errorf("executor %q: want auto, containerd or process", c.kind)
}
