package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// lines yields the lines of an answer, each of which is a JSON value. The last element holds the error, if one ended
// the answer early. What names the answer in errors.
func lines[T any](ctx context.Context, c *Client, r request, what string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		res, err := c.send(ctx, r)
		if err != nil {
			yield(none, err)
			return
		}
		defer res.Body.Close()
		dec := json.NewDecoder(bufio.NewReader(res.Body))
		for {
			var line T
			switch err := dec.Decode(&line); {
			case errors.Is(err, io.EOF):
				return
			case ctx.Err() != nil:
				yield(none, ctx.Err())
				return
			case err != nil:
				yield(none, fmt.Errorf("read the %s: %w", what, err))
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}
