// Command web is the example of a service: a static HTTP server that names the answering task, can be made unhealthy,
// and stops without losing a request.
//
// It listens on ADDR_HTTP or PORT_HTTP, which Berth sets, and answers:
//
//	GET  /         a line for people
//	GET  /version  the task's facts as JSON (answer)
//	GET  /healthz  200, or 500 after POST /fail until POST /recover
//
// After TERM it serves for STOP_DELAY (1 s by default), so that clients with its address get answers. Then it takes no
// more requests, finishes those in flight, and ends with code 0.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// drainLimit bounds the time of requests in flight after the server stopped.
const drainLimit = 5 * time.Second

// run serves until the context ends and all requests in flight are answered.
func run(ctx context.Context, env func(string) string, out io.Writer) error {
	delay := time.Second
	if text := env("STOP_DELAY"); text != "" {
		var err error
		if delay, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("read STOP_DELAY: %w", err)
		}
	}
	addr := env("ADDR_HTTP")
	own := env("BERTH_NETWORK") == "bridge" // ADDR_HTTP is where others come in then, and PORT_HTTP where it leads
	if (addr == "" || own) && env("PORT_HTTP") != "" {
		addr = ":" + env("PORT_HTTP")
	}
	if addr == "" {
		return errors.New("neither ADDR_HTTP nor PORT_HTTP is set")
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: newSite(env), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(out, "serving version %s at http://%s\n", version(env), listener.Addr())

	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	fmt.Fprintf(out, "received a signal to stop, serving for %v more\n", delay)
	time.Sleep(delay)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	if err := server.Shutdown(limit); err != nil {
		return fmt.Errorf("finish requests: %w", err)
	}
	fmt.Fprintln(out, "stopped")
	return nil
}

// answer is the body of /version: the task's facts, as its environment has them.
type answer struct {
	Version string `json:"version"`
	Task    string `json:"task"`
	Index   string `json:"index"`
	Count   string `json:"count"`
	Attempt string `json:"attempt"`
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	Node    string `json:"node"`
	Address string `json:"address"`
}

func version(env func(string) string) string {
	if v := env("VERSION"); v != "" {
		return v
	}
	return "unknown"
}

// newSite returns the pages of one task.
func newSite(env func(string) string) http.Handler {
	facts := answer{
		Version: version(env), Task: env("BERTH_TASK"), Index: env("BERTH_INDEX"),
		Count: env("BERTH_COUNT"), Attempt: env("BERTH_ATTEMPT"), Cluster: env("BERTH_CLUSTER"),
		Service: env("BERTH_SERVICE"), Node: env("BERTH_NODE"), Address: env("ADDR_HTTP"),
	}
	var failing atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "Hello from task %s of %s (version %s, task id %s, node %s)\n",
			facts.Index, facts.Count, facts.Version, facts.Task, facts.Node)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(facts) // the client has disconnected
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(w, "failing, as requested", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /fail", func(w http.ResponseWriter, _ *http.Request) {
		failing.Store(true)
		fmt.Fprintln(w, "failing from now on")
	})
	mux.HandleFunc("POST /recover", func(w http.ResponseWriter, _ *http.Request) {
		failing.Store(false)
		fmt.Fprintln(w, "healthy from now on")
	})
	return mux
}
