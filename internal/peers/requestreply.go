package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// errUnreadable says that another server's answer is no reply. Its text does not quote the answer.
var errUnreadable = errors.New("the answer cannot be read")

// requestReply sends a request to another server and decodes its reply, of maxBytes at most. A body is sent as JSON.
func requestReply[T any](ctx context.Context, client *http.Client, method, url string, body io.Reader, maxBytes int64) (
	reply T, err error,
) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return reply, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply, readProblem(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBytes)).Decode(&reply); err != nil {
		return reply, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return reply, nil
}
