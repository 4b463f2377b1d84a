package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Measurer asks systems outside of Berth. It is safe for concurrent use, and its calls end with their context.
type Measurer interface {
	// Query returns the number that a Prometheus server gives for an expression.
	Query(ctx context.Context, base, query string) (float64, error)
	// Gate checks a gate once. The message describes the result. An error means that there is none.
	Gate(ctx context.Context, g cluster.Gate) (passed bool, message string, err error)
}

const (
	// maxConcurrentQuestions bounds the concurrent questions to the outside. questionTimeout bounds each of them.
	maxConcurrentQuestions = 16
	questionTimeout        = 5 * time.Second
)

// asker sends questions to the outside, so that the loop never waits for the network. The question itself stores its
// answer; the asker then wakes the loop.
type asker struct {
	slots   chan struct{}
	wake    chan struct{}
	running sync.WaitGroup
}

func newAsker() *asker {
	return &asker{slots: make(chan struct{}, maxConcurrentQuestions), wake: make(chan struct{}, 1)}
}

// ask runs a question on a goroutine of its own. It returns false if too many are running; the loop is woken once one
// of them has ended.
func (a *asker) ask(ctx context.Context, question func(context.Context)) bool {
	select {
	case a.slots <- struct{}{}:
	default:
		return false
	}
	a.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, questionTimeout)
		defer cancel()
		question(ctx)
		<-a.slots
		select {
		case a.wake <- struct{}{}:
		default:
		}
	})
	return true
}
