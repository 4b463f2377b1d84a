package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// errServerHangs says that the server accepted a request and answers none.
var errServerHangs = fmt.Errorf("%w: it hangs", errUnanswered)

// watchCall watches a call that may rightly take long, as a report does while the store's disk is slow. Every
// aliveCheckAfter it sends a second request, to check that the server is alive. If the server does not answer, the
// call's context ends with errServerHangs. The caller ends the watch with done.
func (c *Client) watchCall(ctx context.Context, l *link) (watched context.Context, done func()) {
	watched, cancel := context.WithCancelCause(ctx)
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(aliveCheckAfter, func() {
		if err := c.checkAlive(watched, l); err != nil {
			cancel(errServerHangs)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if watched.Err() == nil {
			timer.Reset(aliveCheckAfter)
		}
	})
	return watched, func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		cancel(nil)
	}
}

// checkAlive returns an error unless the server gives any answer.
func (c *Client) checkAlive(ctx context.Context, l *link) error {
	ctx, stop := context.WithTimeout(ctx, aliveCheckTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.base()+PathAlive, nil)
	if err != nil {
		return err
	}
	resp, err := l.http.Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	if err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil // the connection broke, or the call is over: the call itself returns the error
	}
	return err
}
