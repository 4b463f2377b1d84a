package dispatcher_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/transport"
)

// counts keeps what a dispatcher counts, as metrics do.
type counts struct{ connected, interrupted atomic.Int64 }

func (c *counts) Sessions(int) {}

func (c *counts) Reported(time.Duration, int, int) {}

func (c *counts) Connected() { c.connected.Add(1) }

func (c *counts) Interrupted() { c.interrupted.Add(1) }

// An assignment stream that breaks counts as an interruption, as does one whose session was taken over. The end of the
// server interrupts nothing, and a refused request opens nothing.
func TestInterruptedConnectionsAreCounted(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		want := func(connected, interrupted int64) {
			t.Helper()
			synctest.Wait()
			c, i := f.counts.connected.Load(), f.counts.interrupted.Load()
			if c != connected || i != interrupted {
				t.Fatalf("%d connections and %d interruptions, want %d and %d", c, i, connected, interrupted)
			}
		}
		if err := f.assign(1, nil).end(); !errors.Is(err, transport.ErrSession) {
			t.Fatalf("a stream without a session: got %v, want ErrSession", err)
		}
		want(0, 0)
		f.register("n1")
		first := f.assign(1, nil)
		first.expect("synced")
		want(1, 0)
		_ = first.end() // the link broke
		want(1, 1)
		second := f.assign(1, nil)
		second.expect("synced")
		if _, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}); err != nil {
			t.Fatal(err)
		}
		<-second.ended
		want(2, 2)
		third := f.assign(2, nil)
		third.expect("synced")
		f.stop()
		<-third.ended
		want(3, 2)
	})
}
