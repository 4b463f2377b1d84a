package dispatcher_test

import (
	"errors"
	"testing"
	"time"

	"github.com/berthd/berth/internal/transport"
)

// An agent of an earlier build gets no requests for streams that it does not support. The caller gets an error at once.
func TestOldAgentsAreNotAskedForTerminals(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		if _, err := f.Register(t.Context(),
			transport.Registration{Node: "n1", Wire: transport.TerminalVersion - 1}); err != nil {
			t.Fatal(err)
		}
		s := f.assign(1, nil)
		s.expect("synced")
		began := time.Now()
		_, err := f.OpenStream(t.Context(), "n1", transport.StreamRequest{Kind: transport.StreamTerminal})
		if !errors.Is(err, transport.ErrOldAgent) || time.Since(began) > 0 {
			t.Errorf("after %v: got %v, want ErrOldAgent at once", time.Since(began), err)
		}
		if _, err := f.OpenStream(t.Context(), "n1",
			transport.StreamRequest{Kind: transport.StreamExec}); errors.Is(err, transport.ErrOldAgent) {
			t.Errorf("a command without a terminal: %v", err)
		}
		_ = s.end() // it is cancelled
	})
}
