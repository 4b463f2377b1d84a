package node

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/telemetry"
)

// nodeMetrics serves the metrics of a node's tasks, of its agent, and of the process.
type nodeMetrics struct {
	listener net.Listener
	server   *http.Server
	tasks    *telemetry.Tasks
	agent    *telemetry.Agent
}

// openMetrics listens on the configured address. Without an address it returns nil.
func openMetrics(ctx context.Context, listen, token, node string, log *slog.Logger) (*nodeMetrics, error) {
	if listen == "" {
		return nil, nil //nolint:nilnil // metrics are disabled
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("serve metrics: %w", err),
			Hint: "Choose another --metrics-listen, or leave it out.",
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &nodeMetrics{
		listener: listener, tasks: telemetry.NewTasks(node, registry), agent: telemetry.NewAgent(node, registry),
	}
	mux := http.NewServeMux()
	// One scrape runs and one waits. Further requests get an error.
	mux.Handle("GET /metrics",
		requireToken(token, promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})))
	m.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving metrics of tasks", "at", "http://"+listener.Addr().String()+"/metrics")
	return m, nil
}

// requireToken returns a handler that accepts requests with the token. An empty token accepts all.
func requireToken(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send the token of --metrics-token-file as \"Authorization: Bearer TOKEN\"",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// run serves until the context ends.
func (m *nodeMetrics) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = m.server.Close() })()
	if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
