package transport

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// A report without content is by far the most frequent message. It is a request without a body. An answer
// without new content has no body either. This halves the cost for a server.

// Headers of the answer to a bodiless heartbeat, which has status 204. They hold the interval until the next report in
// milliseconds, and the token as "generation.incarnation.epoch".
const (
	headerHeartbeat = "Berth-Heartbeat"
	headerToken     = "Berth-Token"
)

// isBeat reports whether a report has no content, so that it is only a heartbeat.
func (r *Report) isBeat() bool {
	return r.Node != "" && len(r.Tasks) == 0 && r.Facts == nil && r.Stats == nil
}

// beat returns the bodiless request for a report without content.
func (r *Report) beat(ctx context.Context, base string) (*http.Request, error) {
	text := base + PathBeat + url.PathEscape(r.Node) + "/" + strconv.FormatUint(r.Session, 10) + "/" +
		strconv.FormatUint(r.Seq, 10)
	return http.NewRequestWithContext(ctx, http.MethodPost, text, http.NoBody)
}

// readBeat reads the report of a bodiless request.
func readBeat(r *http.Request) (Report, error) {
	session, err := strconv.ParseUint(r.PathValue("session"), 10, 64)
	if err != nil {
		return Report{}, fmt.Errorf("the session of a heartbeat: %w", err)
	}
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return Report{}, fmt.Errorf("the number of a heartbeat: %w", err)
	}
	return Report{Node: r.PathValue("node"), Session: session, Seq: seq}, nil
}

// fitsHeaders reports whether the headers of an answer can carry the whole reply.
func (r *ReportReply) fitsHeaders() bool { return len(r.Refused) == 0 && len(r.Servers) == 0 }

// write answers a bodiless heartbeat with headers only.
func (r *ReportReply) write(w http.ResponseWriter) {
	h := w.Header()
	h["Date"] = nil // no agent reads it
	h[headerHeartbeat] = []string{strconv.FormatInt(time.Duration(r.Heartbeat).Milliseconds(), 10)}
	t := r.Token
	h[headerToken] = []string{fmt.Sprintf("%d.%d.%d", t.Generation, t.Incarnation, t.Epoch)}
	w.WriteHeader(http.StatusNoContent)
}

// read reads the reply from the headers of an answer.
func (r *ReportReply) read(h http.Header) error {
	ms, err := strconv.ParseInt(h.Get(headerHeartbeat), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: read the interval of its answer: %w", errUnanswered, err)
	}
	r.Heartbeat = cluster.Duration(time.Duration(ms) * time.Millisecond)
	numbers := strings.Split(h.Get(headerToken), ".")
	if len(numbers) != 3 {
		return fmt.Errorf("%w: read the token of its answer: %q is none", errUnanswered, h.Get(headerToken))
	}
	for i, to := range []*uint64{&r.Token.Generation, &r.Token.Incarnation, &r.Token.Epoch} {
		if *to, err = strconv.ParseUint(numbers[i], 10, 64); err != nil {
			return fmt.Errorf("%w: read the token of its answer: %w", errUnanswered, err)
		}
	}
	return nil
}

// handleBeat serves bodiless heartbeats.
func handleBeat(d Dispatch) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in, err := readBeat(r)
		if err != nil {
			respond(w, Failure{Title: "Bad Request", Status: http.StatusBadRequest, Detail: err.Error()})
			return
		}
		if !checkNode(w, r, in) {
			return
		}
		out, err := d.Report(r.Context(), in)
		switch {
		case err != nil:
			fail(w, err)
		case out.fitsHeaders():
			out.write(w)
		default:
			reply(w, out)
		}
	}
}
