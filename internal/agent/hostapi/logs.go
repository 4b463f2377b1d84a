package hostapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

const (
	// defaultHistory is how many lines come first unless the caller names a number.
	defaultHistory = 10
	// logStall is how long a reader of logs may read nothing until it is disconnected. Meanwhile only its own stream
	// waits. It continues behind lines that were deleted, and gets their number.
	logStall = 10 * time.Minute
)

// readLogs answers with the newest lines of a task's output, and follows the output where the caller asks for it.
func (s *Server) readLogs(w http.ResponseWriter, r *http.Request) error {
	history, err := route.Number(r, "history", defaultHistory)
	if err != nil {
		return err
	}
	stream := cluster.LogStream(r.URL.Query().Get("stream"))
	switch stream {
	case cluster.StreamStdout, cluster.StreamStderr, cluster.StreamNone:
	default:
		return route.BadQuery("stream", "is %q, want stdout or stderr", respond.Clip(string(stream)))
	}
	t, err := s.readings.find(r)
	if err != nil {
		return err
	}
	if t.UUID == "" {
		return respond.Problemf(http.StatusConflict, "the task %s has no output: it never ran", t.Name)
	}
	end, err := s.limits.openStream(r)
	if err != nil {
		return err
	}
	defer end()
	sse := route.WantsStream(r)
	out := &lineWriter{w: w, ctl: http.NewResponseController(w), events: sse}
	err = s.config.Node.WriteLogs(r.Context(), transport.StreamRequest{
		Kind: transport.StreamLogs, Task: t.ID, UUID: t.UUID, Container: r.URL.Query().Get("container"),
		Logs: &transport.LogsRequest{
			Follow: sse || route.Flag(r, "follow"), Tail: int(min(history, 1<<31-1)), Stream: stream,
		},
	}, out)
	switch {
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return nil
	case err != nil && !out.begun:
		return respond.Problemf(http.StatusConflict, "the output of the task %s cannot be read: %v", t.Name, err)
	case err != nil:
		return err
	}
	return out.begin() // there may be no line
}

// lineWriter writes each line as a line of NDJSON or as an event, and sends it at once.
type lineWriter struct {
	w      http.ResponseWriter
	ctl    *http.ResponseController
	events bool
	begun  bool
}

// begin writes the headers of the answer, once.
func (l *lineWriter) begin() error {
	_ = l.ctl.SetWriteDeadline(time.Now().Add(logStall)) // some writers have no deadlines
	if l.begun {
		return nil
	}
	l.begun = true
	media := route.MediaLines
	if l.events {
		media = route.MediaEventStream
	}
	l.w.Header().Set("Content-Type", media)
	l.w.Header().Set("Cache-Control", "no-store")
	l.w.WriteHeader(http.StatusOK)
	return l.ctl.Flush()
}

// Write writes one line of JSON, which ends with a newline.
func (l *lineWriter) Write(line []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	text := line
	if l.events {
		text = append(append([]byte("event: line\ndata: "), bytes.TrimRight(line, "\n")...), "\n\n"...)
	}
	if _, err := l.w.Write(text); err != nil {
		return 0, err
	}
	return len(line), l.ctl.Flush()
}
