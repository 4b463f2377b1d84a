package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/transport"
)

// carry opens a byte stream and returns the other end.
func (w *world) carry(id string, r transport.StreamRequest) net.Conn {
	ours, theirs := net.Pipe()
	w.server.mu.Lock()
	w.server.carried[id] = theirs
	w.server.mu.Unlock()
	r.ID = id
	w.server.say(transport.Message{Open: &r})
	return ours
}

// write appends lines to the log of a container.
func (w *world) write(uuid, container string, n int, text string) {
	w.t.Helper()
	log := logs.NewWriter(logs.Config{Dir: w.agent.node.LogDir(uuid, container)})
	for i := range n {
		if _, err := fmt.Fprintf(log.Stream(logs.Stdout), "%s %d\n", text, i); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func readTexts(t *testing.T, r io.Reader, n int) (texts []string) {
	t.Helper()
	dec := json.NewDecoder(r)
	for len(texts) < n {
		var l logs.Line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return texts
		} else if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, l.Text)
	}
	return texts
}

func TestLogStream(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app", "side"))
		w.write("s1", "app", 3, "app")
		w.write("s1", "side", 1, "side")
		for name, test := range map[string]struct {
			request transport.StreamRequest
			want    []string
		}{
			"all": {
				transport.StreamRequest{Logs: &transport.LogsRequest{Tail: -1}},
				[]string{"app 0", "app 1", "app 2", "side 0"},
			},
			"tail": {
				transport.StreamRequest{Logs: &transport.LogsRequest{Tail: 1}},
				[]string{"app 2", "side 0"},
			},
			"one container": {transport.StreamRequest{Container: "side"}, []string{"side 0"}},
			"stderr":        {transport.StreamRequest{Logs: &transport.LogsRequest{Tail: -1, Stream: "stderr"}}, nil},
			"another task":  {transport.StreamRequest{UUID: "unknown"}, nil},
		} {
			r := test.request
			r.Kind, r.Task = transport.StreamLogs, d.Task
			conn := w.carry(name, r)
			if diff := cmp.Diff(test.want, readTexts(t, conn, 100)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			_ = conn.Close()
		}
	})
}

func TestLogFollowEndsWithTheAttempt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Minute}
		d := w.batch("b1", definition("work", "app"))
		w.write("b1", "app", 1, "first")
		conn := w.carry("x", transport.StreamRequest{
			Kind: transport.StreamLogs, Task: d.Task, Logs: &transport.LogsRequest{Follow: true, Tail: -1},
		})
		if diff := cmp.Diff([]string{"first 0"}, readTexts(t, conn, 1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.pass(time.Second)
		w.write("b1", "app", 1, "later")
		if diff := cmp.Diff([]string{"later 0"}, readTexts(t, conn, 100)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestLogOverAgentRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		w.write("s1", "app", 2, "before")
		w.restart()
		w.write("s1", "app", 1, "after")
		conn := w.carry("x", transport.StreamRequest{Kind: transport.StreamLogs, Task: d.Task})
		if diff := cmp.Diff([]string{"before 0", "before 1", "after 0"}, readTexts(t, conn, 100)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestStoppedReaderBlocksNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		w.write("s1", "app", 1000, strings.Repeat("x", 100))
		stopped := w.carry("x", transport.StreamRequest{
			Kind: transport.StreamLogs, Task: d.Task, Logs: &transport.LogsRequest{Follow: true, Tail: -1},
		})
		defer func() { _ = stopped.Close() }() // nothing ever reads it
		w.pass(time.Minute)
		w.write("s1", "app", 1000, "chatty")
		w.stopTask(d, false)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.stopTask(d, true)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted); !o.Gone {
			t.Error("a reader kept the attempt from going")
		}
	})
}

func TestExecStream(t *testing.T) {
	type frame struct {
		Channel byte
		Body    string
	}
	read := func(conn io.Reader) (got []frame) {
		for frames := transport.NewFrameReader(conn); ; {
			f, err := frames.Next()
			if err != nil {
				return got
			}
			got = append(got, frame{f.Channel, string(f.Body)})
		}
	}
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		open := func(id string, stdin bool, command ...string) net.Conn {
			return w.carry(id, transport.StreamRequest{
				Kind: transport.StreamExec, Task: d.Task, Exec: &transport.ExecRequest{Command: command, Stdin: stdin},
			})
		}
		got := read(open("a", false, "say", "hello"))
		want := []frame{{transport.ChannelStdout, "say hello"}, {transport.ChannelExit, `{"code":3}`}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}

		conn := open("b", true, "cat")
		in := transport.NewFrameWriter(conn)
		go func() {
			_, _ = io.WriteString(in.Channel(transport.ChannelStdin), "through")
			_ = in.CloseInput()
		}()
		want = []frame{{transport.ChannelStdout, "through"}, {transport.ChannelExit, `{"code":0}`}}
		if diff := cmp.Diff(want, read(conn)); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}

		conn = open("c", false, "hang")
		synctest.Wait()
		_ = conn.Close() // the client leaves: the command ends, or the bubble would not end
		w.stopTask(d, false)
		got = read(open("d", false, "say"))
		if len(got) != 1 || !strings.Contains(got[0].Body, "does not run") {
			t.Errorf("exec in a stopped task: %v", got)
		}
	})
}
