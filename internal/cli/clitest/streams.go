package clitest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/coder/websocket"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// streamLogs answers with all lines of a task's output.
func (f *Fake) streamLogs(w http.ResponseWriter, r *http.Request) {
	for _, l := range f.current().Logs[cluster.TaskID(r.PathValue("id"))] {
		_ = json.NewEncoder(w).Encode(l)
	}
}

// serveExec imitates a command in a container: it prints the request, echoes its input and exits with code 3.
func (f *Fake) serveExec(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	q := r.URL.Query()
	send := func(channel byte, text string) {
		_ = conn.Write(r.Context(), websocket.MessageBinary, append([]byte{channel}, text...))
	}
	send(client.ChannelStdout, fmt.Sprintf("%s %s %q\n", r.PathValue("id"), q.Get("container"), q["command"]))
	for q.Get("stdin") == "true" {
		_, msg, err := conn.Read(r.Context())
		if err != nil || len(msg) == 1 {
			break
		}
		send(client.ChannelStderr, string(msg[1:]))
	}
	send(client.ChannelExit, `{"code":3}`)
}

// RefusedForward is the error of every forwarded connection.
const RefusedForward = "port 1 does not answer: nothing listens there (connection refused)"

// refuseForward imitates a port without a listener. It reads nothing, so a client that sends sees a broken connection.
func (f *Fake) refuseForward(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	text, _ := json.Marshal(client.ExecExit{Error: RefusedForward})
	_ = conn.Write(r.Context(), websocket.MessageBinary, append([]byte{client.ChannelExit}, text...))
	_ = conn.CloseNow()
}
