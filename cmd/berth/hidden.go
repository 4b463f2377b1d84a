package main

import (
	"github.com/berthd/berth/internal/executor/containerd/collector"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/executor/process"
)

// hidden runs the subcommands by which an agent starts its helpers from its own binary: they outlive it, so
// they are programs of their own. It reports false if the arguments name none.
func hidden(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case process.Subcommand:
		return process.Supervise(args[1:]), true
	case collector.Subcommand:
		return collector.Run(args[1:]), true
	case outlive.BecomeSubcommand:
		return outlive.Become(args[1:]), true
	}
	return 0, false
}
