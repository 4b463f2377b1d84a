package serving

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/berthd/berth/internal/reverse"
	"github.com/berthd/berth/internal/serve/join"
)

// dialWait bounds the time that the renewal of a certificate waits for the connection of one server.
const dialWait = 5 * time.Second

// listenForServers opens the address of a passive node; it does nothing for any other node. End closes the address.
func (f *agentFlags) listenForServers(ctx context.Context) (end func(), err error) {
	if f.listen == "" {
		return func() {}, nil
	}
	if f.acceptor, err = reverse.Listen(f.listen, f.log); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f.acceptor.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// dialer returns the way to the servers that dial a passive node; nil for any other node.
func (f *agentFlags) dialer() join.Dial {
	if f.acceptor == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, dialWait, errors.New("no connection in time"))
		defer cancel()
		return f.acceptor.Dial(ctx, address)
	}
}
