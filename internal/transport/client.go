package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// Limits of the data that one side reads from the other.
const (
	maxReply = 64 << 20
	// maxMessage bounds one line of an assignment stream.
	maxMessage = 16 << 20
	// closeTimeout bounds the time that Close of a byte stream waits for the other side.
	closeTimeout = 10 * time.Second
)

// ClientConfig configures an agent's connection to its servers.
type ClientConfig struct {
	// Addresses are addresses of one or more servers of the cluster: "unix:///path", "http://host:port" or
	// "https://host:port". The client learns the others from them. With Dial there may be none: see Learn.
	Addresses []string
	// TLS holds the client's certificate and the servers' authority for https; it may be nil without https addresses.
	TLS *tls.Config
	// Token is sent as a bearer token, unless empty.
	Token string
	// Dial, unless nil, opens the connection to an address in place of the network; for https TLS is added to it.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// HTTP, unless nil, carries all calls, to any address, in place of a client with a connection of its own. Several
	// clients may share it.
	HTTP *http.Client
	// Random, unless nil, returns numbers from 0 up to 1 for the choice of servers.
	Random func() float64
}

// Client is an agent's connection to the servers. It uses one server at a time. If that server goes away, a call
// returns ErrElsewhere, and the next Register begins a session at another one. The methods may be called concurrently,
// Register by one goroutine at a time. They share one HTTP/2 connection, except for byte streams, each of which has its
// own. Otherwise an unread stream would in the end block the whole connection, and with it the node's reports.
type Client struct {
	servers servers
	token   string
}

// NewClient returns a client; it connects with the first call.
func NewClient(c ClientConfig) (*Client, error) {
	var all []string
	for _, a := range c.Addresses {
		if a == "" || slices.Contains(all, a) {
			continue
		}
		e, err := parseAddress(a)
		if err != nil {
			return nil, err
		}
		if e.tls && c.TLS == nil {
			return nil, fmt.Errorf("server address %q: https needs the node's certificate", a)
		}
		all = slices.Insert(all, c.pick(len(all)+1), a)
	}
	if len(all) == 0 && c.Dial == nil {
		return nil, errors.New("a client needs the address of a server")
	}
	return &Client{servers: servers{config: c, configured: all}, token: c.Token}, nil
}

// Close closes the connection. Byte streams have to be closed by themselves.
func (c *Client) Close() {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	if l := c.servers.current; l != nil {
		l.http.CloseIdleConnections()
	}
}

// Report sends a report to the server of the session. It waits until the server has made the report durable.
func (c *Client) Report(ctx context.Context, r Report) (ReportReply, error) {
	var reply ReportReply
	l, err := c.servers.currentLink()
	if err != nil {
		return reply, err
	}
	watched, done := c.watchCall(ctx, l)
	if r.isBeat() {
		err = c.beat(watched, l, &r, &reply)
	} else {
		err = c.call(watched, l, PathReport, r, &reply)
	}
	if err != nil && errors.Is(context.Cause(watched), errServerHangs) {
		err = errServerHangs
	}
	done()
	if err != nil {
		return reply, c.servers.callFailed(ctx, l, err)
	}
	c.servers.callAnswered(l)
	c.servers.learn(reply.Servers)
	return reply, nil
}

func (c *Client) call(ctx context.Context, l *link, path string, in, out any) error {
	resp, err := c.post(ctx, l, path, in) //nolint:bodyclose // by readReply
	if err != nil {
		return err
	}
	return readReply(resp, out)
}

// readReply reads the body of an answer.
func readReply(resp *http.Response, out any) error {
	defer func() { _ = resp.Body.Close() }()
	body := io.LimitReader(resp.Body, maxReply)
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("%w: read its answer: %w", errUnanswered, err)
	}
	_, _ = io.Copy(io.Discard, body) // to its end, since HTTP/2 would otherwise reset the stream
	return nil
}

// beat sends a heartbeat without a body.
func (c *Client) beat(ctx context.Context, l *link, r *Report, reply *ReportReply) error {
	req, err := r.beat(ctx, l.base())
	if err != nil {
		return err
	}
	resp, err := c.send(l.http, req)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		return readReply(resp, reply)
	}
	defer func() { _ = resp.Body.Close() }()
	return reply.read(resp.Header)
}

func (c *Client) post(ctx context.Context, l *link, path string, in any) (*http.Response, error) {
	req, err := request(ctx, l, path, in)
	if err != nil {
		return nil, err
	}
	return c.send(l.http, req)
}

// request returns the HTTP request of a call.
func request(ctx context.Context, l *link, path string, in any) (*http.Request, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

func (c *Client) send(through *http.Client, req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := through.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNoContent {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, readFailure(resp)
}

// Failure is the body of an error answer.
type Failure struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Session is the number of the node's newest session, for ErrSession.
	Session uint64 `json:"session,omitempty"`
	// Elsewhere marks an ErrElsewhere.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

func readFailure(resp *http.Response) error {
	var f Failure
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if json.Unmarshal(b, &f) != nil || f.Detail == "" {
		f.Detail = http.StatusText(resp.StatusCode)
	}
	if f.Elsewhere {
		return fmt.Errorf("%w: %s", ErrElsewhere, f.Detail)
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

// SessionError is ErrSession with the number of the store's newest session, which a new registration names as its
// Previous.
type SessionError struct {
	Newest uint64
	Detail string
}

// Error returns the server's sentence.
func (e *SessionError) Error() string { return ErrSession.Error() + ": " + e.Detail }

// Unwrap makes a SessionError an ErrSession.
func (e *SessionError) Unwrap() error { return ErrSession }

// Assignments is an open assignment stream. One goroutine at a time may call Next.
type Assignments struct {
	body  io.ReadCloser
	lines *bufio.Scanner
	stop  context.CancelFunc
	// onElsewhere handles the server's request to use another server.
	onElsewhere func(error) error
}

// Assignments opens the assignment stream of a session.
func (c *Client) Assignments(ctx context.Context, r AssignmentsRequest) (*Assignments, error) {
	l, err := c.servers.currentLink()
	if err != nil {
		return nil, err
	}
	own, stop := context.WithCancel(ctx)
	resp, err := c.post(own, l, PathAssignments, r) //nolint:bodyclose // by Assignments.Close
	if err != nil {
		stop()
		return nil, c.servers.callFailed(ctx, l, err)
	}
	c.servers.callAnswered(l)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxMessage)
	onElsewhere := func(err error) error { return c.servers.callFailed(ctx, l, err) }
	return &Assignments{body: resp.Body, lines: lines, stop: stop, onElsewhere: onElsewhere}, nil
}

// StreamLine is a line of an assignment stream: a message, or the end of the stream.
type StreamLine struct {
	Message
	ending
}

// ending is the last line of a stream whose session is over.
type ending struct {
	// Over says why the session is over.
	Over    *string `json:"over,omitempty"`
	Session uint64  `json:"session,omitempty"` // the node's newest
	// Elsewhere says that the agent must use another server. Over is then nil.
	Elsewhere *string `json:"elsewhere,omitempty"`
}

// Next blocks until there is a message. After the end of the stream it returns an error: ErrSession if the session is
// over, ErrElsewhere if the server cannot serve it. The end of ctx ends the stream.
func (a *Assignments) Next(ctx context.Context) (Message, error) {
	release := context.AfterFunc(ctx, a.stop)
	defer release()
	if a.lines.Scan() {
		var line StreamLine
		if err := json.Unmarshal(a.lines.Bytes(), &line); err != nil {
			return Message{}, fmt.Errorf("read an assignment: %w", err)
		}
		if line.Over != nil {
			return Message{}, &SessionError{Newest: line.Session, Detail: *line.Over}
		}
		if line.Elsewhere != nil {
			return Message{}, a.onElsewhere(fmt.Errorf("%w: %s", ErrElsewhere, *line.Elsewhere))
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

// Stream calls back for a byte stream that the server requested. Closing it ends both directions.
func (c *Client) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	l, err := c.servers.currentLink()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base()+PathStream+id, in)
	if err != nil {
		stop()
		return nil, err
	}
	own := l.client(&c.servers.config, false)
	resp, err := c.send(own, req)
	if err != nil {
		stop()
		own.CloseIdleConnections()
		return nil, errors.Join(err, out.Close())
	}
	// The end of ctx does not end a write that waits for the other side to read.
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	return &byteStream{Reader: resp.Body, out: out, body: resp.Body, stop: stop, own: own}, nil
}

// byteStream is the agent's end of a byte stream. It writes to the body of the request and reads from the body of the
// answer.
type byteStream struct {
	io.Reader
	out  *io.PipeWriter
	body io.Closer
	stop context.CancelFunc
	own  *http.Client
}

func (s *byteStream) Write(p []byte) (int, error) { return s.out.Write(p) }

// CloseWrite ends the sending direction; the other side reads io.EOF.
func (s *byteStream) CloseWrite() error { return s.out.Close() }

// Close ends the sending direction, waits for the other side to end too, for closeTimeout at most, and releases the
// connection.
func (s *byteStream) Close() error {
	_ = s.out.Close()
	timer := time.AfterFunc(closeTimeout, s.stop)
	_, _ = io.Copy(io.Discard, s.Reader)
	timer.Stop()
	s.stop()
	err := s.body.Close()
	s.own.CloseIdleConnections()
	return err
}
