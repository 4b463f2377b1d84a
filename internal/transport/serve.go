package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Dispatch is the server's side of the protocol. Its errors reach the agent: a *SessionError as ErrSession, ErrRefused
// as itself, any other as a temporary fault.
type Dispatch interface {
	// Register begins a session.
	Register(ctx context.Context, r Registration) (Welcome, error)
	// Assign sends the messages of a session's assignment stream, several at a time, until the context or the session
	// ends.
	Assign(ctx context.Context, r AssignmentsRequest, send func([]Message) error) error
	// Report processes a report and answers once everything that must be durable is durable.
	Report(ctx context.Context, r Report) (ReportReply, error)
	// Carry connects a byte stream that an agent opened to the caller that requested it, and blocks until it has ended.
	Carry(ctx context.Context, id string, stream io.ReadWriter) error
}

// Handler serves the agents' part of the API. Its caller authorizes the requests and adds the calling node by WithNode.
// Handler then refuses calls for another node.
func Handler(d Dispatch) http.Handler {
	mux := http.NewServeMux()
	for _, o := range Operations() {
		mux.HandleFunc(o.Method+" "+o.Path, o.serve(d))
	}
	return mux
}

// answer returns a handler for a call with one request and one reply.
func answer[In nodeMessage, Out any](call func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if !read(w, r, &in) || !checkNode(w, r, in) {
			return
		}
		out, err := call(r.Context(), in)
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, out)
	}
}

func reply(w http.ResponseWriter, out any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // an agent that has disconnected repeats its request
}

func read(w http.ResponseWriter, r *http.Request, in any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReply)).Decode(in)
	if err != nil {
		respond(w, Failure{
			Title: "Bad Request", Status: http.StatusBadRequest,
			Detail: "the request cannot be read: " + err.Error(),
		})
	}
	return err == nil
}

func fail(w http.ResponseWriter, err error) {
	f := Failure{Title: "Service Unavailable", Status: http.StatusServiceUnavailable, Detail: err.Error()}
	var over *SessionError
	switch {
	case errors.As(err, &over):
		f = Failure{Title: "Conflict", Status: http.StatusConflict, Detail: over.Detail, Session: over.Newest}
	case errors.Is(err, ErrRefused):
		f.Title, f.Status = "Forbidden", http.StatusForbidden
	case errors.Is(err, ErrElsewhere):
		f.Elsewhere = true
	}
	respond(w, f)
}

func respond(w http.ResponseWriter, f Failure) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(f)
}

func handleAssign(d Dispatch, w http.ResponseWriter, r *http.Request) {
	var in AssignmentsRequest
	if !read(w, r, &in) || !checkNode(w, r, in) {
		return
	}
	setRequestUserTimeout(r.Context())
	started := false
	flush := http.NewResponseController(w)
	send := func(messages []Message) error {
		var buf bytes.Buffer // not kept, since a stream is idle most of the time
		if !started {
			started = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		enc := json.NewEncoder(&buf)
		for i := range messages {
			if err := enc.Encode(&messages[i]); err != nil {
				return err
			}
		}
		// The server does not wait for an agent that does not read: the agent opens another stream, and gets the then
		// present state.
		if err := setWriteDeadline(flush, time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(buf.Bytes()); err != nil {
			return err
		}
		if err := flush.Flush(); err != nil {
			return err
		}
		return setWriteDeadline(flush, time.Time{}) // a stream may be silent for long
	}
	err := d.Assign(r.Context(), in, send)
	var over *SessionError
	switch {
	case err == nil:
	case !started:
		fail(w, err)
	case errors.As(err, &over):
		b, _ := json.Marshal(ending{Over: &over.Detail, Session: over.Newest})
		_, _ = w.Write(append(b, '\n'))
	case errors.Is(err, ErrElsewhere):
		why := err.Error()
		b, _ := json.Marshal(ending{Elsewhere: &why})
		_, _ = w.Write(append(b, '\n'))
	}
}

// setWriteDeadline sets the deadline of writes; zero means none.
func setWriteDeadline(c *http.ResponseController, until time.Time) error {
	if err := c.SetWriteDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func handleCarry(d Dispatch, w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	// Over HTTP/1.1 the server would otherwise discard the body of the request once the answer has begun.
	if err := flush.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	w.WriteHeader(http.StatusOK)
	if err := flush.Flush(); err != nil {
		return
	}
	s := &serverStream{body: r.Body, out: w, flush: flush}
	// The answer has begun; an error can only end it.
	_ = d.Carry(r.Context(), r.PathValue("id"), s)
	s.end()
}

// serverStream is the server's end of a byte stream.
type serverStream struct {
	body  io.Reader
	mu    sync.Mutex
	ended bool
	out   io.Writer
	flush *http.ResponseController
}

func (s *serverStream) Read(p []byte) (int, error) { return s.body.Read(p) }

func (s *serverStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := s.out.Write(p)
	if err != nil {
		return n, err
	}
	return n, s.flush.Flush()
}

// end makes later writes fail, since nothing may write to the answer after its handler returned. It also ends a write
// that waits for an agent that does not read.
func (s *serverStream) end() {
	if !s.mu.TryLock() {
		_ = s.flush.SetWriteDeadline(time.Now())
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	s.ended = true
}
