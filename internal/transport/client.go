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

// Bounds of what one side reads from the other.
const (
	maxReply = 64 << 20
	// maxMessage bounds one line of an assignment stream.
	maxMessage = 16 << 20
	// quiet is how long the end of a byte stream waits for the other side.
	quiet = 10 * time.Second
)

// ClientConfig says where an agent finds its servers.
type ClientConfig struct {
	// Addresses are those of any servers of the cluster, at least one: "unix:///path", "http://host:port" or
	// "https://host:port". The others are learned from them.
	Addresses []string
	// TLS is how the client shows itself, and knows a server, over https; it may be nil where no address is one.
	TLS *tls.Config
	// Token is sent as a bearer token, unless empty.
	Token string
	// Dial, unless nil, opens the connection to one of the addresses instead of the network; TLS is added to it for
	// https.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// HTTP, unless nil, carries all calls in place of a client with a connection of its own, to any address: many
	// clients can share it.
	HTTP *http.Client
	// Random, unless nil, returns the numbers from 0 up to 1 by which servers are chosen.
	Random func() float64
}

// Client is an agent's end of its connection to the servers. It talks to one of them at a time, and to another where
// that one goes away: then a call returns ErrElsewhere, and the next Register begins a session there. Its methods may
// be called concurrently, Register by one goroutine at a time; all share one HTTP/2 connection, but byte streams, each
// of which has its own: what nobody reads on the other side would in the end hold up everything on its connection,
// reports and so the node's life with it.
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
	if len(all) == 0 {
		return nil, errors.New("a client needs the address of a server")
	}
	return &Client{servers: servers{config: c, given: all}, token: c.Token}, nil
}

// Close closes the connection. Streams are closed by themselves.
func (c *Client) Close() {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	if l := c.servers.current; l != nil {
		l.http.CloseIdleConnections()
	}
}

// Report sends a report to the server of the session and waits until what had to be durable is durable.
func (c *Client) Report(ctx context.Context, r Report) (ReportReply, error) {
	var reply ReportReply
	l, err := c.servers.present()
	if err != nil {
		return reply, err
	}
	attended, done := c.attend(ctx, l)
	if r.plain() && c.servers.speaks(l, beatVersion) {
		err = c.beat(attended, l, &r, &reply)
	} else {
		err = c.call(attended, l, PathReport, r, &reply)
	}
	if err != nil && errors.Is(context.Cause(attended), errHangs) {
		err = errHangs
	}
	done()
	if err != nil {
		return reply, c.servers.failed(ctx, l, err)
	}
	c.servers.answered(l)
	c.servers.learn(reply.Servers)
	return reply, nil
}

func (c *Client) call(ctx context.Context, l *link, path string, in, out any) error {
	resp, err := c.post(ctx, l, path, in) //nolint:bodyclose // by take
	if err != nil {
		return err
	}
	return take(resp, out)
}

// take reads the body of an answer.
func take(resp *http.Response, out any) error {
	defer func() { _ = resp.Body.Close() }()
	body := io.LimitReader(resp.Body, maxReply)
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("%w: read its answer: %w", errUnanswered, err)
	}
	_, _ = io.Copy(io.Discard, body) // to its end, or the connection would be told that the rest is not wanted
	return nil
}

// beat sends a report that says nothing but that its node lives.
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
		return take(resp, reply)
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

// request returns that of a call.
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

// failure is the body of an answer that is no success.
type failure struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Session is, where ErrSession is meant, the number of the node's newest session.
	Session uint64 `json:"session,omitempty"`
	// Elsewhere says that ErrElsewhere is meant.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

func readFailure(resp *http.Response) error {
	var f failure
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
	case http.StatusNotFound:
		return fmt.Errorf("%w: it answered %d: %s", ErrUnknown, resp.StatusCode, f.Detail)
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
	// moved judges the server's wish that another be asked.
	moved func(error) error
}

// Assignments opens the assignment stream of a session.
func (c *Client) Assignments(ctx context.Context, r AssignmentsRequest) (*Assignments, error) {
	l, err := c.servers.present()
	if err != nil {
		return nil, err
	}
	own, stop := context.WithCancel(ctx)
	resp, err := c.post(own, l, PathAssignments, r) //nolint:bodyclose // by Assignments.Close
	if err != nil {
		stop()
		return nil, c.servers.failed(ctx, l, err)
	}
	c.servers.answered(l)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxMessage)
	moved := func(err error) error { return c.servers.failed(ctx, l, err) }
	return &Assignments{body: resp.Body, lines: lines, stop: stop, moved: moved}, nil
}

// ending is the last line of a stream whose session is over.
type ending struct {
	Over    *string `json:"over,omitempty"`
	Session uint64  `json:"session,omitempty"` // the node's newest
	// Elsewhere says instead that another server has to be asked.
	Elsewhere *string `json:"elsewhere,omitempty"`
}

// Next blocks until there is a message. After the stream has ended it returns an error, ErrSession where the server
// ended it because the session is over, ErrElsewhere where it cannot serve it. The end of ctx ends the stream.
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
		if line.Elsewhere != nil {
			return Message{}, a.moved(fmt.Errorf("%w: %s", ErrElsewhere, *line.Elsewhere))
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
	l, err := c.servers.present()
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
