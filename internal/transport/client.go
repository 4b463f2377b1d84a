package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Bounds of what one side reads from the other.
const (
	maxReply = 64 << 20
	// maxMessage bounds one line of an assignment stream.
	maxMessage = 16 << 20
	// quiet is how long a connection may be silent before it is probed, and the probe unanswered.
	quiet = 10 * time.Second
)

// ClientConfig says where an agent finds its server.
type ClientConfig struct {
	// Address is "unix:///path" or "http://host:port".
	Address string
	// Token is sent as a bearer token, unless empty.
	Token string
	// Dial, unless nil, opens the connections instead of the network.
	Dial func(ctx context.Context) (net.Conn, error)
}

// Client is an agent's end of its connection to a server. Its methods may be called concurrently; all share one HTTP/2
// connection, but byte streams, each of which has its own: what nobody reads on the other side would in the end hold up
// everything on its connection, reports and so the node's life with it.
type Client struct {
	http  *http.Client
	fresh func() *http.Client // with a connection of its own
	base  string
	token string
}

// NewClient returns a client; it connects with the first call.
func NewClient(c ClientConfig) (*Client, error) {
	dial, base := c.Dial, "http://berth"
	if dial == nil {
		network, address, ok := splitAddress(c.Address)
		if !ok {
			return nil, fmt.Errorf("server address %q: want unix:///path or http://host:port", c.Address)
		}
		if network == "tcp" {
			base = "http://" + address
		}
		dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	fresh := func() *http.Client {
		return &http.Client{Transport: &http.Transport{
			Protocols:   protocols,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			HTTP2:       &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: quiet, MaxReadFrameSize: 1 << 20},
		}}
	}
	return &Client{http: fresh(), fresh: fresh, base: base, token: c.Token}, nil
}

func splitAddress(s string) (network, address string, ok bool) {
	if path, found := strings.CutPrefix(s, "unix://"); found {
		return "unix", path, path != ""
	}
	if host, found := strings.CutPrefix(s, "http://"); found {
		host = strings.TrimSuffix(host, "/")
		_, _, err := net.SplitHostPort(host)
		return "tcp", host, err == nil
	}
	return "", "", false
}

// Close closes the connection. Streams are closed by themselves.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Register begins a session.
func (c *Client) Register(ctx context.Context, r Registration) (Welcome, error) {
	var w Welcome
	return w, c.call(ctx, PathRegister, r, &w)
}

// Report sends a report and waits until what had to be durable is durable.
func (c *Client) Report(ctx context.Context, r Report) (ReportReply, error) {
	var reply ReportReply
	return reply, c.call(ctx, PathReport, r, &reply)
}

func (c *Client) call(ctx context.Context, path string, in, out any) error {
	resp, err := c.post(ctx, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(out); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string, in any) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.send(c.http, req)
}

func (c *Client) send(through *http.Client, req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := through.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, readFailure(resp)
}

// failure is the body of an answer that is no success.
type failure struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Session is, where ErrSession is meant, the number of the node's newest session.
	Session uint64 `json:"session,omitempty"`
}

func readFailure(resp *http.Response) error {
	var f failure
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if json.Unmarshal(b, &f) != nil || f.Detail == "" {
		f.Detail = http.StatusText(resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusConflict:
		return &SessionError{Newest: f.Session, Detail: f.Detail}
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", ErrRefused, f.Detail)
	default:
		return fmt.Errorf("the server answered %d: %s", resp.StatusCode, f.Detail)
	}
}

// SessionError is ErrSession with the number of the session that the store holds, which a new registration
// names as its Previous.
type SessionError struct {
	Newest uint64
	Detail string
}

// Error returns the server's sentence.
func (e *SessionError) Error() string { return ErrSession.Error() + ": " + e.Detail }

// Unwrap makes it an ErrSession.
func (e *SessionError) Unwrap() error { return ErrSession }

// Assignments is an open assignment stream. One goroutine at a time may call Next.
type Assignments struct {
	body  io.ReadCloser
	lines *bufio.Scanner
	stop  context.CancelFunc
}

// Assignments opens the assignment stream of a session.
func (c *Client) Assignments(ctx context.Context, r AssignmentsRequest) (*Assignments, error) {
	ctx, stop := context.WithCancel(ctx)
	resp, err := c.post(ctx, PathAssignments, r) //nolint:bodyclose // by Assignments.Close
	if err != nil {
		stop()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxMessage)
	return &Assignments{body: resp.Body, lines: lines, stop: stop}, nil
}

// ending is the last line of a stream whose session is over.
type ending struct {
	Over    *string `json:"over,omitempty"`
	Session uint64  `json:"session,omitempty"` // the node's newest
}

// Next blocks until there is a message. After the stream has ended it returns an error, ErrSession where
// the server ended it because the session is over. The end of ctx ends the stream.
func (a *Assignments) Next(ctx context.Context) (Message, error) {
	release := context.AfterFunc(ctx, a.stop)
	defer release()
	if a.lines.Scan() {
		var line struct {
			Message
			ending
		}
		if err := json.Unmarshal(a.lines.Bytes(), &line); err != nil {
			return Message{}, fmt.Errorf("read an assignment: %w", err)
		}
		if line.Over != nil {
			return Message{}, &SessionError{Newest: line.Session, Detail: *line.Over}
		}
		return line.Message, nil
	}
	if err := ctx.Err(); err != nil {
		return Message{}, err
	}
	if err := a.lines.Err(); err != nil {
		return Message{}, fmt.Errorf("read an assignment: %w", err)
	}
	return Message{}, io.EOF
}

// Close ends the stream.
func (a *Assignments) Close() error {
	a.stop()
	return a.body.Close()
}

// Stream calls back for a byte stream that the server asked to open. Closing it ends both directions.
func (c *Client) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	ctx, stop := context.WithCancel(ctx)
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+PathStream+id, in)
	if err != nil {
		stop()
		return nil, err
	}
	own := c.fresh()
	resp, err := c.send(own, req)
	if err != nil {
		stop()
		own.CloseIdleConnections()
		return nil, errors.Join(err, out.Close())
	}
	// The end of ctx alone does not reach a write that waits for the other side to read.
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	return &byteStream{Reader: resp.Body, out: out, body: resp.Body, stop: stop, own: own}, nil
}

// byteStream is the agent's end of a byte stream: what it writes is the request's body, what it reads the answer's.
type byteStream struct {
	io.Reader
	out  *io.PipeWriter
	body io.Closer
	stop context.CancelFunc
	own  *http.Client
}

func (s *byteStream) Write(p []byte) (int, error) { return s.out.Write(p) }

// CloseWrite ends what this side sends; the other side reads its end.
func (s *byteStream) CloseWrite() error { return s.out.Close() }

// Close ends what this side sends, waits until the other side has ended too, or a short time, and
// lets go of the connection.
func (s *byteStream) Close() error {
	_ = s.out.Close()
	timer := time.AfterFunc(quiet, s.stop)
	_, _ = io.Copy(io.Discard, s.Reader)
	timer.Stop()
	s.stop()
	err := s.body.Close()
	s.own.CloseIdleConnections()
	return err
}
