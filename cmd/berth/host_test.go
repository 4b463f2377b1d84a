package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthd/berth/api"
)

// serveHost serves the state in a file as the API of a node, on the unix socket host.sock of the script's folder. A
// domain drives the node, so all changes are refused.
func serveHost(ts *testscript.TestScript, _ bool, args []string) {
	var state api.HostState
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &state))
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks", func(w http.ResponseWriter, _ *http.Request) { answer(w, state) })
	mux.HandleFunc("GET /v1/resources", func(w http.ResponseWriter, _ *http.Request) { answer(w, state.Resources) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(api.Problem{
			Title: "Conflict", Status: http.StatusConflict,
			Detail: fmt.Sprintf("the domain %s drives this node (generation %d)", state.Owner.Domain,
				state.Owner.Generation),
		})
	})
	l, err := net.Listen("unix", ts.MkAbs("host.sock"))
	ts.Check(err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	ts.Defer(func() { _ = server.Close() })
}
