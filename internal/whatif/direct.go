package whatif

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
)

// direct connects a client to an API server in the same process by a function call.
type direct struct{ server http.Handler }

// RoundTrip is part of http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := context.WithValue(r.Context(), http.LocalAddrContextKey,
		net.Addr(&net.UnixAddr{Name: "simulation", Net: "unix"}))
	in := r.Clone(ctx)
	in.RequestURI = r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := &answer{header: http.Header{}}
	d.server.ServeHTTP(w, in)
	_ = in.Body.Close() // it is in memory
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// answer records a server's response.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is part of http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader is part of http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write is part of http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
