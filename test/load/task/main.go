// Command task is the program of the load tests' services: an HTTP server that reports its lifecycle.
//
// It listens on ADDR_HTTP, which Berth sets, and answers:
//
//	POST /        the id of the attempt that answers
//	GET  /healthz 200, or 500 where ILL is set
//	GET  /metrics how many requests it answered, in Prometheus' text format
//
// After TERM it serves for DRAIN (3 s by default), so that clients with its address get answers. It then finishes the
// requests in flight and ends. RECORD is the address of a load.Recorder. The program reports its start, its first
// healthy and failing check, TERM and its end there. GREED is the memory in bytes that it takes at the start, and LEAK
// the bytes that it takes each second. It touches all of them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// headerLimit bounds the time until the first header of a connection. It is longer than clients keep an unused
// connection. Otherwise the server could close a connection while a client begins to use it.
const headerLimit = 5 * time.Minute

// finishLimit bounds the time of requests in flight after the drain. sendLimit bounds the time for unsent records.
const (
	finishLimit = 2 * time.Second
	sendLimit   = time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "task:", err)
		os.Exit(1)
	}
}

// run serves until TERM and the end of the drain.
func run(ctx context.Context, out io.Writer) error {
	drain := 3 * time.Second
	if text := os.Getenv("DRAIN"); text != "" {
		var err error
		if drain, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("read DRAIN: %w", err)
		}
	}
	t := newTeller()
	go eat(number("GREED"), number("LEAK"))
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", os.Getenv("ADDR_HTTP"))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: site(t), ReadHeaderTimeout: headerLimit}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.send("up")
	fmt.Fprintf(out, "version %s serves at %s\n", os.Getenv("VERSION"), listener.Addr())
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	t.send("term")
	fmt.Fprintln(out, "got TERM")
	time.Sleep(drain)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	err = server.Shutdown(limit)
	t.send("end")
	t.close()
	return err
}

// site are its pages.
func site(t *reporter) http.Handler {
	var answered atomic.Int64
	var probed sync.Once
	uuid, ill := os.Getenv("BERTH_ATTEMPT_ID"), os.Getenv("ILL") != ""
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answered.Add(1)
		fmt.Fprintln(w, uuid)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if ill {
			probed.Do(func() { t.send("ill") })
			http.Error(w, "this build is ill", http.StatusInternalServerError)
			return
		}
		probed.Do(func() { t.send("well") })
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE http_requests_total counter\nhttp_requests_total %d\n", answered.Load())
	})
	return mux
}

// number reads a number of bytes from the environment, 0 where there is none.
func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0
	}
	return n
}

// eat takes memory, and more each tenth of a second, until the end.
func eat(first, each int) {
	var held [][]byte
	take := func(n int) {
		b := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	take(first)
	for each > 0 {
		time.Sleep(100 * time.Millisecond)
		take(each / 10)
	}
	<-make(chan struct{}) // without end
	runtime.KeepAlive(held)
}

// reporter sends records to the recorder, in order, and keeps them until the recorder can be reached.
type reporter struct {
	lines chan []byte
	ended chan struct{}
}

func newTeller() *reporter {
	t := &reporter{lines: make(chan []byte, 16), ended: make(chan struct{})}
	go t.run(os.Getenv("RECORD"))
	return t
}

// send sends a record with its time.
func (t *reporter) send(what string) {
	attempt := number("BERTH_ATTEMPT")
	line, err := json.Marshal(map[string]any{
		"at": time.Now(), "what": what, "task": os.Getenv("BERTH_TASK"), "attempt": attempt,
		"uuid": os.Getenv("BERTH_ATTEMPT_ID"), "node": os.Getenv("BERTH_NODE"), "version": os.Getenv("VERSION"),
		"pid": os.Getpid(),
	})
	if err == nil {
		t.lines <- append(line, '\n')
	}
}

// close waits until all records are sent, for sendLimit at most.
func (t *reporter) close() {
	close(t.lines)
	select {
	case <-t.ended:
	case <-time.After(sendLimit):
	}
}

func (t *reporter) run(address string) {
	defer close(t.ended)
	dialer := net.Dialer{Timeout: sendLimit}
	var conn net.Conn
	for line := range t.lines {
		for address != "" {
			var err error
			if conn == nil {
				conn, err = dialer.DialContext(context.Background(), "tcp", address)
			}
			if err == nil {
				_, err = conn.Write(line)
			}
			if err == nil {
				break
			}
			if conn != nil {
				_ = conn.Close() // it is broken
				conn = nil
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if conn != nil {
		_ = conn.Close() // all was written
	}
}
