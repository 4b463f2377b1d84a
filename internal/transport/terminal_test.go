package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestKnows holds which agents are asked for which streams: what an agent has always known is not kept from it.
func TestKnows(t *testing.T) {
	for _, k := range []StreamKind{StreamLogs, StreamExec, StreamImageLoad, StreamImageList} {
		if err := k.Knows(1); err != nil {
			t.Errorf("%s of the first agents: %v", k, err)
		}
	}
	for _, k := range []StreamKind{StreamTerminal, StreamForward, StreamCopyOut, StreamCopyIn, StreamAttach} {
		if err := k.Knows(TerminalVersion); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		err := k.Knows(TerminalVersion - 1)
		if !errors.Is(err, ErrOldAgent) || !strings.Contains(err.Error(), "upgrade it") {
			t.Errorf("%s of an older agent: %v", k, err)
		}
	}
	if WireVersion < TerminalVersion {
		t.Errorf("this build speaks version %d and knows what came with %d", WireVersion, TerminalVersion)
	}
}

// TestEndsOfDirections holds that the end of a direction is a frame that carries nothing.
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
