// Package respond writes answers: JSON, and problems (RFC 9457).
package respond

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/shorten"
	"github.com/berthd/berth/internal/store"
)

// Problem is an error that holds its answer (RFC 9457).
type Problem struct{ api.Problem }

// Error returns the detail with its faults.
func (p *Problem) Error() string {
	if len(p.Faults) > 0 {
		return p.Detail + ": " + cluster.Faults(p.Faults).Error()
	}
	return p.Detail
}

// Problemf returns a problem with a sentence.
func Problemf(status int, format string, args ...any) *Problem {
	return &Problem{api.Problem{
		Title: http.StatusText(status), Status: status,
		Detail: fmt.Sprintf(format, args...),
	}}
}

// Invalid returns the problem of a readable request with faults.
func Invalid(faults cluster.Faults) *Problem {
	p := Problemf(http.StatusUnprocessableEntity, "the request has %s", Plural(len(faults), "fault"))
	p.Faults = faults
	return p
}

// NotFound returns the problem of an object that does not exist.
func NotFound(kind, name string) *Problem {
	return Problemf(http.StatusNotFound, "there is no %s %s", kind, name)
}

// Plural returns a number with its noun: "1 task", "2 tasks".
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// Times returns how often something happened: "once", "2 times".
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return Plural(n, "time")
}

// Suffix returns a text as the end of a sentence, after a colon; "" for an empty text.
func Suffix(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// ProblemOf returns the answer to an error. An internal error is 500 without details.
func ProblemOf(err error) *Problem {
	var p *Problem
	var tooLarge *http.MaxBytesError
	var denied *store.DeniedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return Problemf(http.StatusRequestEntityTooLarge, "the body is larger than %s: send it in parts",
			cluster.Bytes(tooLarge.Limit))
	case errors.Is(err, store.ErrNoSpace) && !errors.Is(err, store.ErrUnknown):
		return Problemf(http.StatusInsufficientStorage,
			"the store is out of space and takes no writes; reads continue and running tasks are not touched. "+
				"Free space on the disk of the server's data directory: writes then continue automatically")
	case errors.Is(err, store.ErrTooLarge):
		return Problemf(http.StatusRequestEntityTooLarge,
			"the objects are too many or too large to be written in one transaction; nothing was written. "+
				"Apply them in parts")
	case errors.Is(err, store.ErrReaders):
		_, older, _ := strings.Cut(err.Error(), store.ErrReaders.Error()+": ")
		return Problemf(http.StatusConflict,
			"services of the mode daemon, or with scaling, and secrets need every server to be of this build, "+
				"and these are older: %s. Nothing was written. Upgrade them first; one that never comes back: "+
				"`berth server remove`", older)
	case errors.Is(err, store.ErrUnknown):
		return Problemf(http.StatusServiceUnavailable,
			"the store did not confirm the write: it may have happened or not. Check it, then repeat the request")
	case errors.As(err, &denied):
		return Problemf(http.StatusServiceUnavailable,
			"nothing was written, and running tasks are not touched: %s", denied.Advice())
	case errors.Is(err, store.ErrLimited):
		return Problemf(http.StatusServiceUnavailable,
			"the store limits the rate of requests, and had no room for this one. Nothing was written; running tasks "+
				"are not touched. Repeat the request later, or ask the operator of the store for a higher limit")
	case errors.Is(err, store.ErrUnavailable):
		return Problemf(http.StatusServiceUnavailable,
			"the store has no quorum: too few of its servers are up, or reach each other. Nothing was written; "+
				"running tasks are not touched. `berth server members` lists the missing ones")
	case errors.Is(err, store.ErrRemoved):
		return Problemf(http.StatusServiceUnavailable,
			"this server was removed from the control plane: ask another one")
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return Problemf(http.StatusServiceUnavailable, "the server is stopping: ask another one, or again in a moment")
	case errors.Is(err, context.DeadlineExceeded):
		return Problemf(http.StatusServiceUnavailable,
			"the store did not answer in time: retry; `berth status` shows its state")
	}
	return Problemf(http.StatusInternalServerError, "the server could not do it; its log says why")
}

// WriteProblem answers a request with an error. Internal errors are logged.
func WriteProblem(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	p := ProblemOf(err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		log.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	}
	body, _ := json.Marshal(p.Problem) // has only text and numbers
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}

// JSON writes a value as JSON.
func JSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(WriteTimeout))
	w.WriteHeader(status)
	_, err = w.Write(append(body, '\n'))
	return err
}

// SetETag sets the ETag of an object.
func SetETag(w http.ResponseWriter, revision uint64) {
	if revision != 0 {
		w.Header().Set("ETag", ETag(revision))
	}
}

// ETag returns the entity tag of a revision.
func ETag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// Clip shortens text from outside for use in a message.
func Clip(s string) string { return shorten.Marked(s, 64) }

// WriteTimeout bounds the time to write an answer, or one piece of a stream.
const WriteTimeout = 30 * time.Second
