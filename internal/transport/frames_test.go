package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFramesRoundTrip(t *testing.T) {
	var wire bytes.Buffer
	w := NewFrameWriter(&wire)
	long := strings.Repeat("x", MaxFrame+10)
	for _, write := range []func() error{
		func() error { _, err := io.WriteString(w.Channel(ChannelStdout), "out"); return err },
		func() error { _, err := io.WriteString(w.Channel(ChannelStderr), long); return err },
		func() error { _, err := w.Channel(ChannelStdout).Write(nil); return err },
		w.CloseInput,
		func() error { return w.End(ExecEnd{Code: 7}) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}

	type frame struct {
		Channel byte
		Body    string
	}
	var got []frame
	r := NewFrameReader(&wire)
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, frame{f.Channel, string(f.Body)})
	}
	want := []frame{
		{ChannelStdout, "out"},
		{ChannelStderr, long[:MaxFrame]},
		{ChannelStderr, long[MaxFrame:]},
		{ChannelStdin, ""},
		{ChannelExit, `{"code":7}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestFrameReaderRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want error
	}{
		"nothing":         {"", io.EOF},
		"half a head":     {"\x01\x00", io.ErrUnexpectedEOF},
		"half a body":     {"\x01\x00\x00\x00\x05abc", io.ErrUnexpectedEOF},
		"no body":         {"\x01\x00\x00\x00\x05", io.ErrUnexpectedEOF},
		"unknown channel": {"\x09\x00\x00\x00\x00", ErrFrame},
		"huge":            {"\x01\xff\xff\xff\xff", ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewFrameReader(strings.NewReader(test.in)).Next(); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x03out\x03\x00\x00\x00\x0a{\"code\":1}"))
	f.Add([]byte("\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x02\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, read := NewFrameReader(bytes.NewReader(in)), 0
		for {
			frame, err := r.Next()
			if err != nil {
				return
			}
			read += frameHead + len(frame.Body)
			if read > len(in) {
				t.Fatalf("read %d bytes of %d", read, len(in))
			}
			_, _ = frame.End()
		}
	})
}
