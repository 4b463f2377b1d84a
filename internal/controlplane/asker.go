package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Measurer asks what is outside of Berth. It is safe for concurrent use, and its calls end with their context.
type Measurer interface {
	// Query returns the number that a Prometheus server answers to an expression.
	Query(ctx context.Context, base, query string) (float64, error)
	// Gate looks at a gate once. The message says what was seen; an error, that nothing could be.
	Gate(ctx context.Context, g cluster.Gate) (passed bool, message string, err error)
}

const (
	// askedMost is how many questions to the outside are under way at once, and askLimit how long one may take.
	askedMost = 16
	askLimit  = 5 * time.Second
)

// asker puts questions to the outside, so that the loop never waits for the network. What comes of them is kept by who
// asked; the loop is woken.
type asker struct {
	slots   chan struct{}
	wake    chan struct{}
	running sync.WaitGroup
}

func newAsker() *asker {
	return &asker{slots: make(chan struct{}, askedMost), wake: make(chan struct{}, 1)}
}

// ask runs a question on a goroutine of its own, unless too many are under way; then it is false, and the loop is woken
// when that has changed.
func (a *asker) ask(ctx context.Context, question func(context.Context)) bool {
	select {
	case a.slots <- struct{}{}:
	default:
		return false
	}
	a.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
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
