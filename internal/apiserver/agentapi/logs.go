package agentapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// LogsAPI reads the output of tasks from their nodes.
type LogsAPI struct {
	Tables  snapshot.Tables
	Find    TaskFinder
	Agents  Streams
	Streams *prometheus.GaugeVec // open streams, by kind
}

// Bounds of log streams.
const (
	maxLine = 1 << 20
	// logStall is how long a client of logs may read nothing until it is disconnected. Meanwhile only the agent's own
	// reader waits. That reader skips rotated lines and reports their number.
	logStall = 10 * time.Minute
)

func (a *LogsAPI) readLogs(w http.ResponseWriter, r *http.Request) error {
	ask, err := LogsRequest(r)
	if err != nil {
		return err
	}
	snap := a.Tables.Snapshot()
	v, row, err := a.Find(snap, r)
	if err != nil {
		return err
	}
	if row == nil {
		return errNotPlaced(v)
	}
	id := cluster.TaskID(r.PathValue("task"))
	stream, err := a.Agents.open(r.Context(), row.Node, transport.StreamRequest{
		Kind: transport.StreamLogs, Task: id, UUID: observe.UUID(row), Container: r.URL.Query().Get("container"),
		Logs: &ask,
	})
	if err != nil {
		if row.Outcome != nil && row.Outcome.LogTail != "" {
			return keptTail(w, id, row.Outcome)
		}
		return err
	}
	stop := context.AfterFunc(r.Context(), func() { _ = stream.Close() }) // ends the read below
	defer stop()
	defer stream.Close() // it was only read
	gauge := a.Streams.WithLabelValues("logs")
	gauge.Inc()
	defer gauge.Dec()
	w.Header().Set("Content-Type", route.MediaLines)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return copyLines(w, stream, api.LogLine{Task: id, Container: onlyContainer(snap, r, v.Definition)})
}

// LogsRequest reads from the query which lines are requested. An error is a problem of status 400.
func LogsRequest(r *http.Request) (transport.LogsRequest, error) {
	ask := transport.LogsRequest{
		Follow: route.Flag(r, "follow"), Tail: -1, Stream: cluster.LogStream(r.URL.Query().Get("stream")),
	}
	if r.URL.Query().Get("tail") != "" {
		n, err := route.Number(r, "tail", 0)
		if err != nil {
			return ask, err
		}
		ask.Tail = int(min(n, 1<<31-1))
	}
	since, err := route.Duration(r, "since")
	if err != nil {
		return ask, err
	}
	ask.Since = cluster.Duration(since)
	if !slices.Contains(ask.Stream.Values(), ask.Stream) {
		return ask, route.BadQuery("stream", "is %q, want stdout or stderr", respond.Clip(string(ask.Stream)))
	}
	return ask, nil
}

// errNotPlaced returns the answer for operations that need a placed task.
func errNotPlaced(v api.TaskView) error {
	text := ""
	if v.Message != "" {
		text = ": " + v.Message
	}
	return respond.Problemf(http.StatusConflict, "task %s is not placed on a node%s", v.ID, text)
}

// errNotStarted returns the answer for operations that need a task whose containers have started.
func errNotStarted(v api.TaskView) error {
	text := ""
	if v.Message != "" {
		text = ": " + v.Message
	}
	return respond.Problemf(http.StatusConflict,
		"task %s has no output yet: it is %s on node %s%s",
		v.ID, v.State, v.Node, text)
}

// onlyContainer returns the container of lines that do not name it, if the task has just one.
func onlyContainer(snap *store.Snapshot, r *http.Request, ref cluster.Ref) string {
	if name := r.URL.Query().Get("container"); name != "" {
		return name
	}
	if def, ok := snap.Definition(ref); ok && len(def.Value.Containers) == 1 {
		return def.Value.Containers[0].Name
	}
	return ""
}

// copyLines passes log lines on and flushes when no more are waiting. The template holds the fields that all lines
// share.
func copyLines(w http.ResponseWriter, from io.Reader, template api.LogLine) error {
	ctl := http.NewResponseController(w)
	if err := ctl.Flush(); err != nil {
		return err
	}
	in := bufio.NewReaderSize(from, 64<<10)
	out := json.NewEncoder(w)
	for {
		text, err := readLine(in)
		if len(text) > 0 {
			line := template
			if err := json.Unmarshal(text, &line); err != nil {
				return fmt.Errorf("decode a log line: %w", err)
			}
			_ = ctl.SetWriteDeadline(time.Now().Add(logStall)) // some writers have no deadlines
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		if err != nil {
			return endOf(err)
		}
		if in.Buffered() == 0 {
			if err := ctl.Flush(); err != nil {
				return err
			}
		}
	}
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read logs: %w", err)
}

// readLine reads a line of bounded length.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("a line is longer than %s", cluster.Bytes(maxLine))
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// keptTail answers with the last output of a failed attempt, which its outcome holds.
func keptTail(w http.ResponseWriter, id cluster.TaskID, o *cluster.Outcome) error {
	w.Header().Set("Content-Type", route.MediaLines)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for text := range strings.SplitSeq(strings.TrimSuffix(o.LogTail, "\n"), "\n") {
		line := api.LogLine{Time: o.Ended, Task: id, Stream: cluster.StreamStdout, Text: text}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// Routes returns the operations of logs.
func (a *LogsAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/tasks/{task}/logs", Name: "readLogs", Role: cluster.RoleSubmitter,
			Summary: "The output of a task: one LogLine as JSON a line.",
			Query: []route.Parameter{
				AttemptParameter(), containerParameter(),
				route.QueryParam("follow", "boolean", "follow new output"),
				route.QueryParam("tail", "integer", "begin with this many of the newest lines; default all"),
				route.QueryParam("since", "duration", "leave out lines older than this"),
				route.QueryParam("stream", "string", "stdout or stderr; default both"),
			},
			Stream: route.MediaLines, Long: true, Serve: a.readLogs,
		},
	}
}
