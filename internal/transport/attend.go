package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// errHangs says that the server took a request and answers nothing.
var errHangs = fmt.Errorf("%w: it hangs", errUnanswered)

// attend watches over a call that may rightly take long, as a report does while the store's disk is slow. Once it has
// taken a while the server is asked beside whether it is there; if it does not answer, the call's context ends with
// errHangs. The caller ends the watch.
func (c *Client) attend(ctx context.Context, l *link) (attended context.Context, done func()) {
	attended, cancel := context.WithCancelCause(ctx)
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(attendAfter, func() {
		if err := c.ask(attended, l); err != nil {
			cancel(errHangs)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if attended.Err() == nil {
			timer.Reset(attendAfter)
		}
	})
	return attended, func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		cancel(nil)
	}
}

// ask returns an error unless the server answers anything.
func (c *Client) ask(ctx context.Context, l *link) error {
	ctx, stop := context.WithTimeout(ctx, attendWait)
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
		return nil // the connection broke, or the call is over: the call itself tells
	}
	return err
}
