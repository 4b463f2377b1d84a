package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// serve is a server with only the agents' part: a dispatcher over a store in memory, behind mutual TLS. With -whole the
// store is etcd, and a control plane decides. It prints its address and serves until the context ends.
func serve(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	profiled, err := startProfiles(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, profiled()) }()
	log := slog.New(slog.DiscardHandler)
	engine, closed, err := openStore(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	d := dispatcher.New(dispatcher.Config{
		Engine: engine, Tables: tables, Logger: log, Clock: boottime.Now,
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
		Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	transport.ConfigureServer(server)
	fmt.Fprintf(stdout, "https://%s\n", listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return printHeap(ctx, o.heap, stderr) })
	group.Go(func() error { return tables.Run(ctx) })
	group.Go(func() error { return d.Run(ctx) })
	if o.whole {
		plane := controlplane.New(controlplane.Config{
			Engine: engine, Member: engine.Membership(), Tables: tables,
			Domain: cluster.DefaultDomain, Server: "fleet",
			Random: rand.New(rand.NewPCG(1, 1)),
			Logger: log, Now: time.Now, Clock: boottime.Now,
		})
		group.Go(func() error { return plane.Run(ctx) })
	}
	group.Go(func() error { return server.Serve(tls.NewListener(listener, config)) })
	<-ctx.Done()
	err = server.Close()
	if gerr := group.Wait(); !errors.Is(gerr, context.Canceled) && !errors.Is(gerr, http.ErrServerClosed) {
		err = errors.Join(err, gerr)
	}
	return err
}

// openStore opens the store, and returns what closes it.
func openStore(ctx context.Context, o options) (store.ServerEngine, func() error, error) {
	if !o.whole {
		return memory.New(memory.Options{}), func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "berth-fleet-")
	if err != nil {
		return nil, nil, err
	}
	e, err := engines.Own{Dir: dir, Name: "fleet"}.Open(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var upkeep sync.WaitGroup
	upkeep.Go(func() { _ = e.Run(running) })
	return e, func() error {
		stop()
		upkeep.Wait()
		return errors.Join(e.Close(), os.RemoveAll(dir))
	}, nil
}

// startProfiles begins the profiles that were requested, and returns what ends and writes them.
func startProfiles(o options) (func() error, error) {
	if o.profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(o.profile)
	if err != nil {
		return nil, err
	}
	begin := time.AfterFunc(o.after, func() { _ = pprof.StartCPUProfile(f) }) // an empty file shows the fault
	heapAt(o.profile+".heap", o.after)
	return func() error {
		begin.Stop()
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// heapAt writes a profile of the memory in use after a time. The process continues.
func heapAt(file string, after time.Duration) {
	time.AfterFunc(after, func() {
		f, err := os.Create(file)
		if err != nil {
			return // a missing file shows the fault
		}
		runtime.GC()
		_ = pprof.WriteHeapProfile(f)
		_ = f.Close()
	})
}

// printHeap collects the garbage periodically, and prints the memory in use after it.
func printHeap(ctx context.Context, every time.Duration, to io.Writer) error {
	if every == 0 {
		return nil
	}
	began := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintf(to, "after %.0f s: heap %.1f MB in use after a collection, stacks %.1f MB, %d goroutines\n",
			time.Since(began).Seconds(), float64(m.HeapAlloc)/(1<<20), float64(m.StackInuse)/(1<<20),
			runtime.NumGoroutine())
	}
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
