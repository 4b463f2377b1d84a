package respond_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/store"
)

// TestFaultsOfTheServerSayWhatToDo checks that errors of the server contain the next step for the client.
func TestFaultsOfTheServerSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		store.ErrNoSpace, store.ErrTooLarge, store.ErrUnknown, store.ErrUnavailable, store.ErrRemoved, store.ErrClosed,
		context.DeadlineExceeded, errors.New("odd"),
	} {
		p := respond.ProblemOf(err)
		hasRemedy := false
		for _, way := range []string{
			"ask ", "Ask ", "repeat the request", "Apply them", "Free space", "`berth ", "its log",
		} {
			hasRemedy = hasRemedy || strings.Contains(p.Detail, way)
		}
		if p.Status < 400 || !hasRemedy {
			t.Errorf("%v: status %d, %q names no remedy", err, p.Status, p.Detail)
		}
	}
}
