package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// serve is a server with nothing but the agents' part: a dispatcher over a store in memory, behind mutual TLS. It prints its
// address and serves until the context ends.
func serve(ctx context.Context, o options, stdout io.Writer) error {
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		begin := time.AfterFunc(o.after, func() { _ = pprof.StartCPUProfile(f) }) // an empty file tells
		defer pprof.StopCPUProfile()
		defer begin.Stop()
	}
	log := slog.New(slog.DiscardHandler)
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	d := dispatcher.New(dispatcher.Config{
		Engine: engine, Tables: tables, Domain: cluster.DefaultDomain, Logger: log, Clock: boottime.Now,
	})
	config, err := serverTLS(o.authority)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	handler := transport.Handler(d)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if who, ok := pki.SubjectOf(r.TLS); ok {
				handler.ServeHTTP(w, r.WithContext(transport.WithNode(r.Context(), who.Name)))
				return
			}
			http.Error(w, "a node's certificate is wanted", http.StatusForbidden)
		}),
		Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	transport.Tune(server)
	fmt.Fprintf(stdout, "https://%s\n", listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return tables.Run(ctx) })
	group.Go(func() error { return d.Run(ctx) })
	group.Go(func() error { return server.Serve(tls.NewListener(listener, config)) })
	<-ctx.Done()
	err = server.Close()
	if gerr := group.Wait(); !errors.Is(gerr, context.Canceled) && !errors.Is(gerr, http.ErrServerClosed) {
		err = errors.Join(err, gerr)
	}
	return err
}

// serverTLS returns the configuration of a server of the authority in dir.
func serverTLS(dir string) (*tls.Config, error) {
	a, err := pki.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	config, err := certified(a, pki.Subject{Role: cluster.RoleServer, Name: "fleet"})
	if err != nil {
		return nil, err
	}
	config.VerifyConnection = nil // it is for the other side
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, roots(a)
	return config, nil
}
