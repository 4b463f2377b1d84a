package transport

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// How soon a peer that is gone is noticed. A program that ends has its connections closed at once. The kernel probes a
// silent connection: a machine that went away, or a cut link, ends it within 4 s and costs the programs nothing. A
// server that hangs while its machine lives is found by a question beside a report that is not answered (see attend).
// The pings of HTTP/2 are for what is left, such as a byte stream whose other end hangs; they wake both programs, so
// they are sent only on connections that were silent for longer than any heartbeat lasts (see
// dispatcher.LongestHeartbeat).
//
// A connection without a stream is closed after idleMost: an agent that is well always has its assignments open. One
// that is left, for another server or at the end, while a stream is still open on it would otherwise stay for ever.
const (
	dialWait      = 2 * time.Second
	probeAfter    = 2 * time.Second
	probeEvery    = time.Second
	probeCount    = 2
	unackedMost   = 4 * time.Second
	attendAfter   = 4 * time.Second
	attendWait    = 4 * time.Second
	idleMost      = 30 * time.Second
	silentMost    = 150 * time.Second
	pingWait      = 5 * time.Second
	handshakeWait = 10 * time.Second
	writeMost     = 30 * time.Second
	tcpUserExpiry = 18 // TCP_USER_TIMEOUT
)

// endpoint is where a server is reached.
type endpoint struct {
	text             string // as it was given
	network, address string
	tls              bool
}

// parseAddress reads "unix:///path", "http://host:port" or "https://host:port".
func parseAddress(s string) (endpoint, error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok && path != "" {
		return endpoint{s, "unix", path, false}, nil
	}
	for _, scheme := range []string{"http://", "https://"} {
		if host, ok := strings.CutPrefix(s, scheme); ok {
			host = strings.TrimSuffix(host, "/")
			if _, _, err := net.SplitHostPort(host); err == nil {
				return endpoint{s, "tcp", host, scheme == "https://"}, nil
			}
		}
	}
	return endpoint{}, fmt.Errorf("server address %q: want unix:///path, http://host:port or https://host:port", s)
}

// base is what the URLs of the server's API begin with.
func (e endpoint) base() string {
	switch {
	case e.network == "unix":
		return "http://berth"
	case e.tls:
		return "https://" + e.address
	}
	return "http://" + e.address
}

// client returns an HTTP/2 client with a connection of its own, main for that of reports and assignments.
func (e endpoint) client(c *ClientConfig, main bool) *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(e.tls)
	protocols.SetUnencryptedHTTP2(!e.tls)
	t := &http.Transport{
		Protocols:           protocols,
		TLSHandshakeTimeout: handshakeWait,
		IdleConnTimeout:     idleMost,
		DisableCompression:  true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: silentMost, PingTimeout: pingWait, WriteByteTimeout: writeMost, MaxReadFrameSize: 1 << 20,
		},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.Dial == nil {
				return e.dial(ctx, main)
			}
			ctx, stop := context.WithTimeout(ctx, dialWait)
			defer stop()
			return c.Dial(ctx, e.text)
		},
	}
	if e.tls {
		t.TLSClientConfig = c.TLS.Clone()
	}
	return &http.Client{Transport: t}
}

func (e endpoint) dial(ctx context.Context, main bool) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         dialWait,
		KeepAliveConfig: keepAlive(),
	}
	if main {
		d.Control = func(network, _ string, c syscall.RawConn) error { return expire(network, c) }
	}
	return d.DialContext(ctx, e.network, e.address)
}

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probeCount}
}

// expire bounds how long what was sent may stay unacknowledged: the kernel does not probe meanwhile. It also bounds how
// long the other program may leave its buffer full, so it is for the connections of reports and assignments alone: a
// byte stream may rightly wait for its reader.
func expire(network string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserExpiry, int(unackedMost.Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("bound the wait for acknowledgements: %w", err)
	}
	return nil
}

type connKey struct{}

// Tune makes a server that serves Handler notice agents that are gone, within the times above. It is called before the
// server serves.
func Tune(s *http.Server) {
	if s.HTTP2 == nil {
		s.HTTP2 = &http.HTTP2Config{}
	}
	s.HTTP2.SendPingTimeout, s.HTTP2.PingTimeout, s.HTTP2.WriteByteTimeout = silentMost, pingWait, writeMost
	// MaxDecoderHeaderTableSize stays as it is: the server would keep to a smaller table before the client has heard of
	// it, and end connections whose first requests come together with COMPRESSION_ERROR.
	next := s.ConnContext
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if next != nil {
			ctx = next(ctx, c)
		}
		if under, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = under.NetConn()
		}
		t, ok := c.(*net.TCPConn)
		if !ok {
			return ctx
		}
		_ = t.SetKeepAliveConfig(keepAlive()) // a connection that just broke says so by itself
		return context.WithValue(ctx, connKey{}, t)
	}
}

// expireOf does so for the connection of a request, at a server that was tuned.
func expireOf(ctx context.Context) {
	t, ok := ctx.Value(connKey{}).(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		_ = expire("tcp", raw) // a connection that just broke says so by itself
	}
}
