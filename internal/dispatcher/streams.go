package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/transport"
)

// ErrNoSession says that no agent of the node is connected to this server.
var ErrNoSession = errors.New("no agent of the node is connected")

// streams holds the byte streams that agents were asked to open.
type streams struct {
	mu      sync.Mutex
	waiting map[string]requestedStream
}

// requestedStream is a stream that an agent was asked to open.
type requestedStream struct {
	node string
	open chan openedStream
}

// openedStream is a stream that an agent opened; done is closed when it is no longer needed.
type openedStream struct {
	io.ReadWriter
	done chan struct{}
	once *sync.Once
}

// Close lets the agent's call return.
func (c openedStream) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// OpenStream asks the agent of a node to call back with a byte stream, and returns it once it is open. The caller
// closes it.
func (d *Dispatcher) OpenStream(ctx context.Context, node string, r transport.StreamRequest) (io.ReadWriteCloser,
	error,
) {
	s := d.sessions.of(node)
	if s == nil {
		return nil, fmt.Errorf("%s: %w", node, ErrNoSession)
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	r.ID = id.String()
	open := make(chan openedStream, 1)
	d.streams.mu.Lock()
	d.streams.waiting[r.ID] = requestedStream{node, open}
	d.streams.mu.Unlock()
	d.secrets.recordLookup(node, &r)

	timer := time.NewTimer(callBackTimeout)
	defer timer.Stop()
	opens := s.streamRequests
	for {
		select {
		case opens <- &r:
			opens = nil
		case c := <-open:
			return c, nil
		case <-s.ended:
			err = fmt.Errorf("%s: %w", node, ErrNoSession)
		case <-timer.C:
			err = fmt.Errorf("%s: %w", node, errLate)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			d.streams.abandon(r.ID, open)
			return nil, err
		}
	}
}

// abandon removes a stream that no caller waits for; if the agent has just called, its call ends.
func (t *streams) abandon(id string, open chan openedStream) {
	t.mu.Lock()
	delete(t.waiting, id)
	t.mu.Unlock()
	select {
	case c := <-open:
		_ = c.Close()
	default:
	}
}

// Carry connects a stream that an agent opened to the caller of OpenStream, until that caller closes it.
func (d *Dispatcher) Carry(ctx context.Context, id string, stream io.ReadWriter) error {
	c := openedStream{ReadWriter: stream, done: make(chan struct{}), once: new(sync.Once)}
	d.streams.mu.Lock()
	asked, ok := d.streams.waiting[id]
	if caller, known := transport.NodeFrom(ctx); known && caller != asked.node {
		ok = false // a node must not open the stream of another node
	}
	if ok {
		delete(d.streams.waiting, id)
		asked.open <- c // does not block; under the lock, so that abandon finds it
	}
	d.streams.mu.Unlock()
	if !ok {
		return fmt.Errorf("no request waits for stream %s", id)
	}
	select {
	case <-c.done:
		return nil
	case <-d.sessions.over:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}
