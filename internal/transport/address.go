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

// These times bound the time until a lost peer is noticed. The kernel closes the connections of a program that ends
// immediately. It probes a silent connection: a lost machine or a cut link ends the connection within 4 s, without work
// for the programs. A server that hangs while its machine lives is found by a second request in parallel to an
// unanswered report (see watchCall). HTTP/2 pings cover the remaining cases, such as a byte stream whose other end
// hangs. Pings wake both programs, so they are sent only on connections that were silent for longer than any heartbeat
// interval (see dispatcher.LongestHeartbeat).
//
// A connection without a stream is closed after maxIdle, since a healthy agent always has its assignments open.
// Otherwise an abandoned connection with an open stream would never be closed.
const (
	dialTimeout       = 2 * time.Second
	keepAliveIdle     = 2 * time.Second
	keepAliveInterval = time.Second
	keepAliveProbes   = 2
	maxUnacked        = 4 * time.Second
	aliveCheckAfter   = 4 * time.Second
	aliveCheckTimeout = 4 * time.Second
	maxIdle           = 30 * time.Second
	pingAfterSilence  = 150 * time.Second
	pingTimeout       = 5 * time.Second
	handshakeTimeout  = 10 * time.Second
	writeTimeout      = 30 * time.Second
	tcpUserTimeout    = 18 // TCP_USER_TIMEOUT
)

// endpoint is the address of a server.
type endpoint struct {
	text             string // as it was configured
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

// base returns the beginning of the URLs of the server's API.
func (e endpoint) base() string {
	switch {
	case e.network == "unix":
		return "http://berth"
	case e.tls:
		return "https://" + e.address
	}
	return "http://" + e.address
}

// client returns an HTTP/2 client with a connection of its own; main is true for reports and assignments.
func (e endpoint) client(c *ClientConfig, main bool) *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(e.tls)
	protocols.SetUnencryptedHTTP2(!e.tls)
	t := &http.Transport{
		Protocols:           protocols,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     maxIdle,
		DisableCompression:  true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfterSilence, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
			MaxReadFrameSize: 1 << 20,
		},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.Dial == nil {
				return e.dial(ctx, main)
			}
			ctx, stop := context.WithTimeout(ctx, dialTimeout)
			defer stop()
			conn, err := c.Dial(ctx, e.text)
			if t, ok := conn.(*net.TCPConn); ok && err == nil {
				err = tune(t, main)
			}
			return conn, err
		},
	}
	if e.tls {
		t.TLSClientConfig = c.TLS.Clone()
	}
	return &http.Client{Transport: t}
}

func (e endpoint) dial(ctx context.Context, main bool) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: keepAlive(),
	}
	if main {
		d.Control = func(network, _ string, c syscall.RawConn) error { return setUserTimeout(network, c) }
	}
	return d.DialContext(ctx, e.network, e.address)
}

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveProbes}
}

// tune makes a connection that others opened notice a lost peer, as one of dial does.
func tune(t *net.TCPConn, main bool) error {
	if err := t.SetKeepAliveConfig(keepAlive()); err != nil || !main {
		return err
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	return setUserTimeout("tcp", raw)
}

// setUserTimeout bounds the time that sent data may stay unacknowledged, since the kernel does not probe in that time.
// It also bounds the time that the other program may leave its buffer full. It is therefore only for the connections of
// reports and assignments: a byte stream may wait for its reader.
func setUserTimeout(network string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(maxUnacked.Milliseconds()))
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

// ConfigureServer configures a server that serves Handler, so that it notices lost agents within the times above. It is
// called before the server serves.
func ConfigureServer(s *http.Server) {
	if s.HTTP2 == nil {
		s.HTTP2 = &http.HTTP2Config{}
	}
	s.HTTP2.SendPingTimeout, s.HTTP2.PingTimeout, s.HTTP2.WriteByteTimeout = pingAfterSilence, pingTimeout, writeTimeout
	// MaxDecoderHeaderTableSize keeps its default. The server would apply a smaller table before the client knows of
	// it, and end connections with concurrent first requests by COMPRESSION_ERROR.
	next := s.ConnContext
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if next != nil {
			ctx = next(ctx, c)
		}
		for {
			under, ok := c.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			c = under.NetConn()
		}
		t, ok := c.(*net.TCPConn)
		if !ok {
			return ctx
		}
		_ = t.SetKeepAliveConfig(keepAlive()) // a broken connection reports its error by itself
		return context.WithValue(ctx, connKey{}, t)
	}
}

// setRequestUserTimeout calls setUserTimeout for the connection of a request, at a server that Tune configured.
func setRequestUserTimeout(ctx context.Context) {
	t, ok := ctx.Value(connKey{}).(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		_ = setUserTimeout("tcp", raw) // a broken connection reports its error by itself
	}
}
