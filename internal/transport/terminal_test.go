package transport

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// TestEndsOfDirections checks that the end of a direction is a frame that carries nothing.
func TestEndsOfDirections(t *testing.T) {
	var wire bytes.Buffer
	w := NewFrameWriter(&wire)
	if err := errors.Join(w.CloseOutput(), w.CloseInput()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w.Channel(ChannelSignal), "INT"); err != nil {
		t.Fatal(err)
	}
	r := NewFrameReader(&wire)
	for i, want := range []byte{ChannelStdout, ChannelStdin, ChannelSignal} {
		if f, err := r.Next(); err != nil || f.Channel != want || (len(f.Body) == 0) == (want == ChannelSignal) {
			t.Errorf("frame %d: got %+v %v, want one of channel %d", i, f, err, want)
		}
	}
}
