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

// Dispatch is the server's side of the talk. Its errors reach the agent: a *SessionError as ErrSession,
// ErrRefused as itself, any other as a fault that may pass.
type Dispatch interface {
	// Register begins a session.
	Register(ctx context.Context, r Registration) (Welcome, error)
	// Assign sends the messages of a session's assignment stream, several at a time, until the context or the session
	// ends.
	Assign(ctx context.Context, r AssignmentsRequest, send func([]Message) error) error
	// Report takes a report and answers once what had to be durable is durable.
	Report(ctx context.Context, r Report) (ReportReply, error)
	// Carry connects a byte stream that an agent opened to whoever asked for it, and blocks until it has ended.
	Carry(ctx context.Context, id string, stream io.ReadWriter) error
}

// Handler serves the agents' part of the API. Who may call it is for the caller to check; where it has found out
// which node calls, it says so by WithNode, and a call for another node is refused.
func Handler(d Dispatch) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathRegister, answer(d.Register))
	mux.HandleFunc("POST "+PathReport, answer(d.Report))
	mux.HandleFunc("POST "+PathSecrets, giveSecrets(d))
	mux.HandleFunc("POST "+PathAddresses, tellAddresses(d))
	mux.HandleFunc("POST "+PathAssignments, func(w http.ResponseWriter, r *http.Request) { assign(d, w, r) })
	mux.HandleFunc("POST "+PathStream+"{id}", func(w http.ResponseWriter, r *http.Request) { carry(d, w, r) })
	mux.HandleFunc("POST "+PathBeat+"{node}/{session}/{seq}", beat(d))
	mux.HandleFunc("GET "+PathAlive, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// answer makes a handler of a call with one request and one reply.
func answer[In ofNode, Out any](call func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if !read(w, r, &in) || !own(w, r, in) {
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
	_ = json.NewEncoder(w).Encode(out) // an agent that went away asks again
}

func read(w http.ResponseWriter, r *http.Request, in any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReply)).Decode(in)
	if err != nil {
		respond(w, failure{
			Title: "Bad Request", Status: http.StatusBadRequest,
			Detail: "the request cannot be read: " + err.Error(),
		})
	}
	return err == nil
}

func fail(w http.ResponseWriter, err error) {
	f := failure{Title: "Service Unavailable", Status: http.StatusServiceUnavailable, Detail: err.Error()}
	var over *SessionError
	switch {
	case errors.As(err, &over):
		f = failure{Title: "Conflict", Status: http.StatusConflict, Detail: over.Detail, Session: over.Newest}
	case errors.Is(err, ErrRefused):
		f.Title, f.Status = "Forbidden", http.StatusForbidden
	case errors.Is(err, ErrElsewhere):
		f.Elsewhere = true
	}
	respond(w, f)
}

func respond(w http.ResponseWriter, f failure) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(f)
}

func assign(d Dispatch, w http.ResponseWriter, r *http.Request) {
	var in AssignmentsRequest
	if !read(w, r, &in) || !own(w, r, in) {
		return
	}
	expireOf(r.Context())
	started := false
	flush := http.NewResponseController(w)
	send := func(messages []Message) error {
		var buf bytes.Buffer // a stream is at rest for most of the time: it keeps none
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
		// An agent that does not read is not waited for: it opens a stream again, and is sent what then stands.
		if err := bound(flush, time.Now().Add(writeMost)); err != nil {
			return err
		}
		if _, err := w.Write(buf.Bytes()); err != nil {
			return err
		}
		if err := flush.Flush(); err != nil {
			return err
		}
		return bound(flush, time.Time{}) // a stream may be silent for long
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

// bound sets until when what is written has to be taken, for ever if zero.
func bound(c *http.ResponseController, until time.Time) error {
	if err := c.SetWriteDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func carry(d Dispatch, w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil {
		return
	}
	s := &served{body: r.Body, out: w, flush: flush}
	// The answer has begun; an error can only end it.
	_ = d.Carry(r.Context(), r.PathValue("id"), s)
	s.end()
}

// served is the server's end of a byte stream.
type served struct {
	body  io.Reader
	mu    sync.Mutex
	ended bool
	out   io.Writer
	flush *http.ResponseController
}

func (s *served) Read(p []byte) (int, error) { return s.body.Read(p) }

func (s *served) Write(p []byte) (int, error) {
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

// end makes later writes fail: the answer may not be written to after its handler returned. A write that waits for
// an agent that does not read is cut off.
func (s *served) end() {
	if !s.mu.TryLock() {
		_ = s.flush.SetWriteDeadline(time.Now())
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	s.ended = true
}
