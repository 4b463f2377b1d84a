package transport

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

// echo is a server that sends back what byte streams carry.
type echo struct{ Dispatch }

func (echo) Carry(_ context.Context, _ string, stream io.ReadWriter) error {
	_, err := io.Copy(stream, stream)
	return err
}

// A worker may speak HTTP/1.1. There, a server that does not ask for both directions discards the body of a request
// once its answer has begun.
func TestByteStreamsOverHTTP1(t *testing.T) {
	s := httptest.NewServer(Handler(echo{}))
	defer s.Close()
	body, in := io.Pipe()
	go func() {
		_, _ = io.WriteString(in, "one\n") // the reader below checks
		_, _ = io.WriteString(in, strings.Repeat("x", 300<<10))
		_ = in.Close()
	}()
	resp, err := s.Client().Post(s.URL+PathStream+"1", "application/octet-stream", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || len(got) != 4+300<<10 || resp.ProtoMajor != 1 {
		t.Errorf("%d bytes came back over %s, want all (%v)", len(got), resp.Proto, err)
	}
}
