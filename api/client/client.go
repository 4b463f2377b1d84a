// Package client talks to a Berth server.
//
// A Client is made once for an address and lives as long as its owner likes; it holds
// connections that are reused and nothing else. Every call takes a context and ends with it.
// Lists can wait for a change (ListOptions.Index and Wait), come in pages (All
// follows them) and, as events and logs, as streams that are ranged over:
//
//	c, err := client.New(client.Config{Addr: "unix:///run/berth/api.sock"})
//	page, err := c.Services(ctx, "", client.ListOptions{})
//
// A refusal of the server is an *Error with every fault of the request; a server that cannot be reached is
// ErrUnreachable.
//
// # Size
//
// A Client has a method for each request of the API, so that callers find them in one place. A file holds the requests
// about one subject.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/api"
)

// ErrUnreachable is in the chain of every error of a request that got no answer.
var ErrUnreachable = errors.New("no server")

// ErrUncertain is in the chain of the error of a write that was sent and whose answer was lost. The write may have
// happened or not; check before you retry.
var ErrUncertain = errors.New("the write may have happened or not")

// maxProblem is the maximum size of an error answer, in bytes.
const maxProblem = 1 << 20

// dialTimeout limits the time to connect.
const dialTimeout = 10 * time.Second

// Config is the configuration of a client.
type Config struct {
	// Addr is "http://host:port", "https://host:port" or "unix:///path", or several of them separated by commas. A
	// request goes to the server that answered last, and to the next one if that is unreachable.
	Addr string
	// Token is sent as bearer token, unless it is empty or the address is a unix socket.
	Token string
	// TLS has the trusted authorities of https addresses; nil uses the machine's.
	TLS *tls.Config
	// Agent names the program in the User-Agent header.
	Agent string
	// Transport replaces the client's own, which dials Addr.
	Transport http.RoundTripper
}

// Client sends requests to a server, or to several interchangeable ones. It has one method for each operation of the
// API, so that the list of methods is the list of operations. It is safe for concurrent use.
type Client struct {
	addr  string
	base  *url.URL
	token string
	agent string
	http  *http.Client
	taken *http.Client // for connections that are taken over, as websockets do
	// settled makes reads wait until the answering server has caught up with the store.
	settled bool
}

// New returns a client, which connects with its first request.
func New(cfg Config) (*Client, error) {
	c := &Client{addr: cfg.Addr, token: cfg.Token, agent: cfg.Agent}
	good := new(atomic.Int64)
	all, err := newServers(cfg, good, false)
	if err != nil {
		return nil, err
	}
	taken, err := newServers(cfg, good, true)
	if err != nil {
		return nil, err
	}
	c.base = all.list[0].base
	noRedirect := func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a server does not redirect, and a token is not carried elsewhere
	}
	c.http = &http.Client{Transport: all, CheckRedirect: noRedirect}
	c.taken = &http.Client{Transport: taken, CheckRedirect: noRedirect}
	return c, nil
}

// Addr returns the address from the configuration.
func (c *Client) Addr() string { return c.addr }

// Consistent returns a client, over the same connections, whose reads include all writes through any server before
// them. Such a read asks the store, and fails without quorum.
func (c *Client) Consistent() *Client {
	consistent := *c
	consistent.settled = true
	return &consistent
}

// settles reports whether a request is a read of records, which may be consistent.
func (r request) settles() bool {
	if r.method != http.MethodGet || r.root || len(r.path) == 0 {
		return false
	}
	switch r.path[0] {
	case "clusters", "definitions", "services", "jobs", "crons", "endpoints", "nodes", "events", "servers", "status",
		"recovery", "domain":
		return true
	case "tasks":
		return len(r.path) < 3 || r.path[2] == "explain" // no logs, no command
	}
	return false
}

// Close closes idle connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.taken.CloseIdleConnections()
}

// Error is an error answer.
type Error struct {
	// Method and Path are of the request.
	Method, Path string
	// Foreign says that the answer is not from a Berth server.
	Foreign bool
	api.Problem
}

// Error returns the server's message with all faults.
func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = http.StatusText(e.Status)
	}
	if len(e.Faults) == 0 {
		return text
	}
	return text + ": " + api.Faults(e.Faults).Error()
}

// AnswerError is a success answer that could not be read: it is incomplete, or not from a Berth server.
type AnswerError struct{ error }

// Unwrap returns the fault of the answer.
func (e *AnswerError) Unwrap() error { return errors.Unwrap(e.error) }

// StatusOf returns the HTTP status of an error answer, or 0 for any other error.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// Condition is a precondition of a write.
type Condition struct {
	// Revision, unless 0, is the required revision of the object.
	Revision uint64
	// Absent requires that the object does not exist.
	Absent bool
}

// request is one call.
type request struct {
	method string
	path   []string // elements, joined and escaped
	query  url.Values
	body   any // sent as JSON, or an io.Reader that is sent as it is
	header http.Header
	root   bool // the path begins at the server's root, not at /v1
	repeat bool // to be sent twice is to be sent once
}

func get(path ...string) request { return request{method: http.MethodGet, path: path} }

func post(body any, path ...string) request {
	return request{method: http.MethodPost, path: path, body: body}
}

// outside makes the path begin at the server's root.
func (r request) outside() request {
	r.root = true
	return r
}

// once marks a request that has the same effect when it is sent twice, so it may go to another server if its answer was
// lost.
func (r request) once() request {
	r.repeat = true
	return r
}

func (r request) with(query url.Values) request {
	r.query = query
	return r
}

func (r request) given(cond Condition) request {
	r.header = http.Header{}
	if cond.Revision != 0 {
		r.header.Set("If-Match", strconv.Quote(strconv.FormatUint(cond.Revision, 10)))
	}
	if cond.Absent {
		r.header.Set("If-None-Match", "*")
	}
	return r
}

// url returns the request's address on the server.
func (c *Client) url(r request) *url.URL {
	u := c.base.JoinPath() // a copy
	escaped := make([]string, len(r.path))
	for i, p := range r.path {
		escaped[i] = url.PathEscape(p)
	}
	base := "/v1/"
	if r.root {
		base = "/"
	}
	u.Path = base + strings.Join(r.path, "/")
	u.RawPath = base + strings.Join(escaped, "/")
	u.RawQuery = r.query.Encode()
	if c.settled && r.settles() {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&consistent", "&")
	}
	return u
}

// send sends the request and returns a success answer, whose body the caller closes.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	res, err := c.exchange(ctx, r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return nil, refusal(r.method, c.url(r).Path, res)
	}
	return res, nil
}

// exchange sends the request and returns any answer; the caller closes its body.
func (c *Client) exchange(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	var local *localReader
	contentType := "application/x-tar"
	switch b := r.body.(type) {
	case nil:
	case io.Reader:
		local = &localReader{Reader: b}
		body = local
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body, contentType = bytes.NewReader(raw), "application/json"
	}
	if r.repeat {
		ctx = repeatable(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url(r).String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	maps.Copy(req.Header, r.header)
	c.authorize(req.Header)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if local != nil {
			if err := local.fault(); err != nil {
				return nil, fmt.Errorf("read what is to be sent: %w", err)
			}
		}
		return nil, c.unreachable(err)
	}
	return res, nil
}

// localReader records why the body of a request could not be read, which is not the server's fault.
type localReader struct {
	io.Reader
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (r *localReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed.Store(&err)
	}
	return n, err
}

func (r *localReader) fault() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// unreachable returns the error of a request without an answer, without the names of internal calls.
func (c *Client) unreachable(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if strings.Contains(c.addr, ",") { // each address has its own reason
		return fmt.Errorf("%w:\n%w", ErrUnreachable, err)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.addr, err)
}

func (c *Client) authorize(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if c.agent != "" {
		h.Set("User-Agent", c.agent)
	}
}

// refusal reads an error answer and closes it.
func refusal(method, path string, res *http.Response) error {
	defer res.Body.Close()
	e := &Error{Method: method, Path: path}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if err != nil || media != "application/problem+json" || json.Unmarshal(raw, &e.Problem) != nil {
		text, _, _ := strings.Cut(strings.TrimSpace(string(raw)), "\n")
		e.Problem = api.Problem{Title: http.StatusText(res.StatusCode), Detail: text}
		if strings.HasPrefix(media, "text/html") || media == "application/json" || text == "" {
			e.Detail, e.Foreign = "the answer is not of a Berth server: "+res.Status, true
		}
	}
	e.Status = res.StatusCode
	return e
}

// call sends the request and decodes its answer into out, unless that is nil. It returns the revision from the answer's
// ETag, or 0.
func (c *Client) call(ctx context.Context, r request, out any) (uint64, error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	revision, _ := strconv.ParseUint(strings.Trim(res.Header.Get("ETag"), `"`), 10, 64)
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxProblem))
		return revision, err
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		err = &AnswerError{fmt.Errorf("read the answer to %s %s from %s: %w", r.method, c.url(r).Path, c.addr, err)}
		if r.method != http.MethodGet {
			err = fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		return 0, err
	}
	return revision, nil
}
