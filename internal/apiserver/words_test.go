package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/store"
)

// TestFaultsOfTheServerSayWhatToDo holds that whoever cannot be served for the server's own sake is told what to do
// about it.
func TestFaultsOfTheServerSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		store.ErrNoSpace, store.ErrTooLarge, store.ErrUnknown, store.ErrUnavailable, store.ErrRemoved, store.ErrClosed,
		context.DeadlineExceeded, errors.New("odd"),
	} {
		p := respond.ProblemOf(err)
		told := false
		for _, way := range []string{"ask ", "Ask ", "Apply them", "Free space", "`berth ", "its log"} {
			told = told || strings.Contains(p.Detail, way)
		}
		if p.Status < 400 || !told {
			t.Errorf("%v: status %d, %q tells no way out", err, p.Status, p.Detail)
		}
	}
}
