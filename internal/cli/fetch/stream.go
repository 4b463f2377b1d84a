package fetch

import (
	"context"
	"errors"
)

// IgnoreCanceled returns nil for the error of a canceled context. A user ends a followed stream that way.
func IgnoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
