package stream

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// TestForwardReportsRefusal checks that a connection to a port without a listener is an error, also while the local
// program sends.
func TestForwardReportsRefusal(t *testing.T) {
	fake := clitest.NewFakeAt(nil, clitest.State{Tasks: []api.TaskView{
		{ID: "default.web.1.0", Attempt: 1, State: cluster.StateRunning},
	}})
	t.Cleanup(fake.Close)
	var stderr bytes.Buffer
	sess := session.New(strings.NewReader(""), io.Discard, &stderr)
	sess.Addrs = []string{fake.URL}
	c, err := sess.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := &forwarding{Session: sess, client: c, task: "default.web.1.0"}

	local, program := net.Pipe()
	err = f.forward(t.Context(), local, "1")
	if err == nil || err.Error() != clitest.RefusedForward {
		t.Errorf("a program that sends nothing: got %v, want %s", err, clitest.RefusedForward)
	}
	_ = program.Close()

	for range 20 { // each side may notice the end first
		local, program := net.Pipe()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for err := error(nil); err == nil; {
				_, err = program.Write(make([]byte, 64<<10))
			}
		}()
		if err := f.forward(t.Context(), local, "1"); err == nil {
			t.Fatal("a program that sends: no error")
		}
		_ = program.Close()
		<-sent
	}

	// The same fault is printed again after a while.
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	sess.Now = func() time.Time { return now }
	for _, after := range []time.Duration{0, time.Second, faultInterval} {
		now = now.Add(after)
		f.printFault(io.ErrUnexpectedEOF)
	}
	want := strings.Repeat("berth: a connection to task web.1.0: unexpected EOF\n", 2)
	if got := stderr.String(); got != want {
		t.Errorf("faults:\n got %s\nwant %s", got, want)
	}
}
