package respond_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
		context.DeadlineExceeded, errors.New("odd"), store.ErrLimited, &store.DeniedError{Err: errors.New("403")},
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

// TestDeniedByTheStore checks that an answer names what an external store denies and the remedy, and no quorum. It
// hides the answer of the store, which may name the token.
func TestDeniedByTheStore(t *testing.T) {
	t.Parallel()
	denied := &store.DeniedError{
		What: "consul does not know the token", Remedy: "Check --store-token-file /etc/berth/token",
		Err: errors.New("403 of the token 1234"),
	}
	for _, test := range []struct {
		name   string
		err    error
		want   []string
		absent []string
	}{
		{
			"a call", fmt.Errorf("write: %w", denied),
			[]string{"does not know the token", "nothing was written", "--store-token-file /etc/berth/token"},
			[]string{"quorum", "1234"},
		},
		{
			"a call with an unknown result", fmt.Errorf("%w: %w", store.ErrUnknown, denied),
			[]string{"may have happened or not"},
			[]string{"nothing was written", "1234"},
		},
	} {
		p := respond.ProblemOf(test.err)
		if p.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: got status %d, want 503", test.name, p.Status)
		}
		for _, words := range test.want {
			if !strings.Contains(p.Detail, words) {
				t.Errorf("%s: got %q, want %q in it", test.name, p.Detail, words)
			}
		}
		for _, words := range test.absent {
			if strings.Contains(p.Detail, words) {
				t.Errorf("%s: got %q, want nothing of %q", test.name, p.Detail, words)
			}
		}
	}
}
