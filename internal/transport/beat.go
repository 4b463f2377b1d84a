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

// A report that says nothing but that its node lives is by far the most frequent message: from version 2 on it travels
// as a request without a body, and so does its answer where that says nothing new. That halves what it costs a server.

// beatVersion is the first version with bodiless heartbeats.
const beatVersion = 2

// Headers of the answer to a bodiless heartbeat, which has status 204: the promised interval in milliseconds, and the
// token as "generation.incarnation.epoch".
const (
	headerHeartbeat = "Berth-Heartbeat"
	headerToken     = "Berth-Token"
)

// plain reports whether a report says nothing but that its node lives.
func (r *Report) plain() bool {
	return r.Node != "" && len(r.Tasks) == 0 && r.Facts == nil && r.Stats == nil
}

// beat returns the request for a plain report.
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

// plain reports whether the headers of an answer can carry all of a reply.
func (r *ReportReply) plain() bool { return len(r.Refused) == 0 && len(r.Servers) == 0 }

// write answers a bodiless heartbeat with headers alone.
func (r *ReportReply) write(w http.ResponseWriter) {
	h := w.Header()
	h["Date"] = nil // nobody reads it
	h[headerHeartbeat] = []string{strconv.FormatInt(time.Duration(r.Heartbeat).Milliseconds(), 10)}
	t := r.Token
	h[headerToken] = []string{fmt.Sprintf("%d.%d.%d", t.Generation, t.Incarnation, t.Epoch)}
	w.WriteHeader(http.StatusNoContent)
}

// read takes the reply from the headers of an answer.
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

// beat serves bodiless heartbeats.
func beat(d Dispatch) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in, err := readBeat(r)
		if err != nil {
			respond(w, failure{Title: "Bad Request", Status: http.StatusBadRequest, Detail: err.Error()})
			return
		}
		if !own(w, r, in) {
			return
		}
		out, err := d.Report(r.Context(), in)
		switch {
		case err != nil:
			fail(w, err)
		case out.plain():
			out.write(w)
		default:
			reply(w, out)
		}
	}
}
