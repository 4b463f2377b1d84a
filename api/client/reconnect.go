package client

import (
	"context"
	"net/http"
	"time"

	"github.com/berthd/berth/internal/pause"
)

// Delays between attempts to resume a stream.
const (
	firstDelay = 250 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// reconnect opens a stream again after each break, until ctx ends. The function open reads one stream and resets the
// backoff with each message; done means that the caller needs no more. After a break, the function broken decides
// whether the sequence ends, and with which error.
func reconnect(ctx context.Context, open func(*pause.Backoff) (done bool, err error),
	broken func(error) (end bool, err error),
) error {
	backoff := pause.Backoff{Shortest: firstDelay, Longest: lastDelay}
	for {
		done, err := open(&backoff)
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if end, err := broken(err); end {
			return err
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// isRefused reports whether the server refused a request, so that a repetition is refused, too.
func isRefused(err error) bool {
	status := StatusOf(err)
	return status != 0 && status < http.StatusInternalServerError
}
