package fetch

import (
	"context"
	"errors"
)

// EndOfStream is the error of a stream that was to go on until it is interrupted: none then.
func IgnoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
