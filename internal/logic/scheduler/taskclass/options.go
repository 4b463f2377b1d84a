package taskclass

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Options tune a cycle. The zero value is ready to use.
type Options struct {
	// Services and Jobs are the strategies of tasks whose owner names none. If they are empty, tasks that request
	// devices use whole. Other tasks of services use spread, and other tasks of jobs binpack.
	Services, Jobs cluster.Strategy

	// Now decides which reservations have begun or ended. With the zero time none has begun.
	Now time.Time

	// Search is how the nodes are searched. All ways give equal results: tests force each of them.
	Search SearchWay
}

// SearchWay is a way to search the nodes for a task.
type SearchWay int

const (
	// SearchByCost chooses the way with less work for each task class.
	SearchByCost SearchWay = iota
	// SearchByRanking ranks all nodes once for each task class.
	SearchByRanking
	// SearchByTrees searches the trees of node classes for each task.
	SearchByTrees
)

// Strategy returns the strategy of a task: its owner's, else that of Services or Jobs, else the default.
func (o Options) Strategy(p *cluster.Pending) cluster.Strategy {
	own := o.Services
	if p.Owner.Kind == cluster.KindJob {
		own = o.Jobs
	}
	switch {
	case p.Placement.Strategy != "":
		return p.Placement.Strategy
	case own != "":
		return own
	case len(p.Devices) > 0:
		return cluster.StrategyWhole
	case p.Owner.Kind == cluster.KindJob:
		return cluster.StrategyBinpack
	}
	return cluster.StrategySpread
}
