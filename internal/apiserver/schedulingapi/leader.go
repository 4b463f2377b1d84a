package schedulingapi

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/scheduling"
)

const (
	// proposalTimeout bounds how long a proposal waits for its answer.
	proposalTimeout = 30 * time.Second
	// stateTimeout bounds how long a request waits for the first state after a leader's begin.
	stateTimeout = 10 * time.Second
	// repeatInterval is how often a stream without changes repeats its revision, so that both ends notice a broken
	// connection.
	repeatInterval = 10 * time.Second
	// maxProposalBytes bounds a proposal that another server passes on. That server has bounded it for its client.
	maxProposalBytes = 64 << 20
)

// Plane is the control plane of a domain on this server. It is safe for concurrent use.
type Plane interface {
	// Propose has the leader answer a proposal. See scheduling.Mailbox.
	Propose(ctx context.Context, r *scheduling.Request) (cluster.ProposalAnswer, error)
	// SchedulingState returns the state of the domain, nil if this server does not lead it.
	SchedulingState() *scheduling.Feed
}

// Leader answers schedulers for the domains that this server leads: "/<domain>/state" and "/<domain>/proposals". Its
// callers have authorized the requests. It is safe for concurrent use.
type Leader struct {
	// PlaneOf returns this server's control plane of a domain, nil if it runs none.
	PlaneOf func(domain string) Plane
	Log     *slog.Logger
}

// ServeHTTP answers a request that another server passes on.
func (l *Leader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	domain, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if err := l.serve(w, r, domain, r.URL.Path); err != nil {
		respond.WriteProblem(w, r, l.Log, err)
	}
}

func (l *Leader) serve(w http.ResponseWriter, r *http.Request, domain, path string) error {
	p := l.PlaneOf(domain)
	if p == nil {
		return noLeader(domain)
	}
	switch {
	case strings.HasSuffix(path, "/state") && r.Method == http.MethodGet:
		return l.serveState(w, r, domain, p)
	case strings.HasSuffix(path, "/proposals") && r.Method == http.MethodPost:
		return l.serveProposal(w, r, domain, p)
	}
	return respond.NotFound("operation", respond.Clip(path))
}

func (l *Leader) serveProposal(w http.ResponseWriter, r *http.Request, domain string, p Plane) error {
	var asked cluster.Proposal
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxProposalBytes)).Decode(&asked); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), proposalTimeout)
	defer cancel()
	answer, err := p.Propose(ctx, &scheduling.Request{
		Proposal: &asked, DryRun: route.Flag(r, "dry_run"),
	})
	if err != nil {
		return problemOf(domain, err)
	}
	w.Header().Set(access.AcceptedHeader, strconv.Itoa(answer.Accepted))
	w.Header().Set(access.RefusedHeader, strconv.Itoa(answer.Refused))
	return respond.JSON(w, http.StatusOK, answer)
}

// problemOf returns the answer to an error of a proposal.
func problemOf(domain string, err error) error {
	var fenced *scheduling.FencedError
	switch {
	case errors.As(err, &fenced):
		return respond.Problemf(http.StatusConflict, "%s", fenced.Error())
	case errors.Is(err, scheduling.ErrBusy):
		return respond.Problemf(http.StatusTooManyRequests, "%s", err.Error())
	case errors.Is(err, scheduling.ErrUnknown):
		return respond.Problemf(http.StatusServiceUnavailable, "%s", scheduling.ErrUnknown.Error())
	case errors.Is(err, scheduling.ErrNotLeading):
		return noLeader(domain)
	}
	return err
}

// serveState writes the state of a domain as lines, and with follow what changes, until the client or the term of the
// leader ends.
func (l *Leader) serveState(w http.ResponseWriter, r *http.Request, domain string, p Plane) error {
	feed := p.SchedulingState()
	if feed == nil {
		return noLeader(domain)
	}
	defer feed.Open()()
	since, follow := r.URL.Query().Get("since"), route.Flag(r, "follow")
	lines, ok := awaitState(r.Context(), feed, since)
	if !ok {
		return noLeader(domain)
	}
	h := w.Header()
	h.Set("Content-Type", route.MediaLines)
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding")
	out := newLineWriter(w, r)
	w.WriteHeader(http.StatusOK)
	repeat := time.NewTicker(repeatInterval)
	defer repeat.Stop()
	for {
		if err := out.write(&lines); err != nil {
			return nil // the client has gone
		}
		if !follow || lines.Ended {
			_ = out.close() // the client may have gone
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-lines.Changed:
		case <-repeat.C:
		}
		lines = feed.Read(lines.Revision)
	}
}

// awaitState reads a feed, and waits until it has a state. It returns false if the term of the leader, the request or
// stateTimeout ended before: a leader has no state while the store went back and the operator has to decide.
func awaitState(ctx context.Context, feed *scheduling.Feed, since string) (scheduling.Lines, bool) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	for {
		lines := feed.Read(since)
		if lines.Revision != "" || lines.Ended {
			return lines, lines.Revision != ""
		}
		select {
		case <-ctx.Done():
			return lines, false
		case <-lines.Changed:
		}
	}
}

// lineWriter writes lines to a client, compressed if it accepts gzip.
type lineWriter struct {
	ctl     *http.ResponseController
	to      io.Writer
	packer  *gzip.Writer // nil for plain text
	scratch []byte
}

func newLineWriter(w http.ResponseWriter, r *http.Request) *lineWriter {
	out := &lineWriter{ctl: http.NewResponseController(w), to: w}
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		out.packer = gzip.NewWriter(w)
		out.to = out.packer
	}
	return out
}

// acceptsGzip reports whether a client accepts gzip.
func acceptsGzip(accepted string) bool {
	for part := range strings.SplitSeq(accepted, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" && strings.TrimSpace(quality) != "q=0" {
			return true
		}
	}
	return false
}

// write writes lines that belong together, and sends them.
func (o *lineWriter) write(lines *scheduling.Lines) error {
	o.scratch = o.scratch[:0]
	if lines.Reset {
		o.scratch = append(o.scratch, `{"reset":true}`+"\n"...)
	}
	for _, text := range lines.Texts {
		o.scratch = append(append(o.scratch, text...), '\n')
	}
	last, err := json.Marshal(cluster.SchedulingLine{Revision: lines.Revision})
	if err != nil {
		return err
	}
	o.scratch = append(append(o.scratch, last...), '\n')
	_ = o.ctl.SetWriteDeadline(time.Now().Add(respond.WriteTimeout)) // some writers have no deadlines
	if _, err := o.to.Write(o.scratch); err != nil {
		return err
	}
	if o.packer != nil {
		if err := o.packer.Flush(); err != nil {
			return err
		}
	}
	return o.ctl.Flush()
}

// close ends the text.
func (o *lineWriter) close() error {
	if o.packer != nil {
		return o.packer.Close()
	}
	return nil
}
