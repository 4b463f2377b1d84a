package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
)

// serverConfig is what a server needs.
type serverConfig struct {
	dataDir string   // holds the store, the token and the server's id
	listen  []string // addresses as apiserver.Listen takes them
	log     *slog.Logger
}

// server is the control plane of one process: store, tables, plane, dispatcher and API.
type server struct {
	config    serverConfig
	engine    *etcd.Engine
	tables    *store.Tables
	plane     *controlplane.Plane
	dispatch  *dispatcher.Dispatcher
	api       *apiserver.Server
	listeners []*apiserver.Listener
	tokenFile string
}

// openServer opens the store and the listeners. What it opened, close closes.
func openServer(ctx context.Context, c serverConfig) (s *server, err error) {
	if err := os.MkdirAll(c.dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	id, err := serverID(filepath.Join(c.dataDir, "server-id"))
	if err != nil {
		return nil, err
	}
	s = &server{config: c, tokenFile: filepath.Join(c.dataDir, "token")}
	token, err := apiserver.TokenFile(s.tokenFile)
	if err != nil {
		return nil, err
	}
	for _, address := range c.listen {
		l, err := apiserver.Listen(address)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.listeners = append(s.listeners, l)
	}
	s.engine, err = etcd.Open(ctx, etcd.Config{Dir: filepath.Join(c.dataDir, "etcd"), Log: c.log})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.wire(id, token)
	return s, nil
}

// wire connects the parts; nothing runs yet.
func (s *server) wire(id, token string) {
	log := s.config.log
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	engine := telemetry.NewEngine(s.engine, registry)
	s.tables = store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	s.plane = controlplane.New(controlplane.Config{
		Engine:  engine,
		Tables:  s.tables,
		Domain:  cluster.DefaultDomain,
		Server:  id,
		Random:  rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Logger:  log,
		Now:     time.Now,
		Clock:   boottime.Now,
		Metrics: telemetry.NewPlane(registry),
	})
	s.dispatch = dispatcher.New(dispatcher.Config{
		Engine:  engine,
		Tables:  s.tables,
		Domain:  cluster.DefaultDomain,
		Logger:  log,
		Clock:   boottime.Now,
		Metrics: telemetry.NewDispatcher(registry),
	})
	s.api = apiserver.New(apiserver.Config{
		Engine:   engine,
		Tables:   s.tables,
		Nodes:    s.dispatch,
		Reasons:  s.plane,
		Agents:   transport.Handler(s.dispatch),
		Token:    token,
		Registry: registry,
		Log:      log,
	})
}

// run serves until the context ends, then closes everything.
func (s *server) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.tables.Run(ctx) })
	group.Go(func() error { return s.plane.Run(ctx) })
	group.Go(func() error { return s.dispatch.Run(ctx) })
	group.Go(func() error { return s.api.Serve(ctx, s.listeners...) })
	err := group.Wait()
	if err := s.close(); err != nil {
		s.config.log.Error("the store was not closed cleanly", "error", err)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// close closes what openServer opened.
func (s *server) close() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.api == nil { // else Serve has closed them
		for _, l := range s.listeners {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// ready waits until the server has a leader and its tables show it.
func (s *server) ready(ctx context.Context) error {
	for {
		snap := s.tables.Snapshot()
		if _, ok := snap.Leader(cluster.DefaultDomain); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.tables.Changed(snap.Revision()):
		}
	}
}

// serverID returns the server's own name, made at its first start.
func serverID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the server's id: %w", err)
	}
	id := uuid.NewString()
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the server's id: %w", err)
	}
	return id, nil
}

// newServerCommand returns `berth server`.
func newServerCommand() *cobra.Command {
	var dataDir, level, profile string
	var listen []string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane: store, decisions and API",
		Long: "Runs a control plane: the store, the decisions and the API. Agents on this machine connect to one of its addresses.\n" +
			"Only unix sockets and loopback addresses are served; loopback wants the token of <data-dir>/token.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(cmd.ErrOrStderr(), level)
			if err != nil {
				return err
			}
			stop, err := profileCPU(profile)
			if err != nil {
				return err
			}
			defer stop()
			s, err := openServer(cmd.Context(), serverConfig{dataDir: dataDir, listen: listen, log: log})
			if err != nil {
				return err
			}
			group, ctx := errgroup.WithContext(cmd.Context())
			group.Go(func() error { return s.run(ctx) })
			group.Go(func() error {
				if err := s.ready(ctx); err != nil {
					return nil //nolint:nilerr // run says why the server ended
				}
				fmt.Fprintf(cmd.OutOrStdout(), "berth: ready at %s\n", preferredURL(s.listeners))
				return nil
			})
			return group.Wait()
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultDataDir(), "folder for the store, the token and the server's id (default "+dataDirText+")")
	cmd.Flags().StringArrayVar(&listen, "listen", []string{"unix://" + defaultSocket(), defaultHTTP},
		"address to serve, unix:///path or a loopback host:port; may be given several times (default "+socketText+" and http://"+defaultHTTP+")")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&profile, "cpu-profile", "", "file to write a CPU profile to, until the server ends")
	ofMachine(cmd, "data-dir", "listen")
	return cmd
}

// profileCPU writes a profile to a file until the returned function is called. No name means none.
func profileCPU(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("make the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // the profile is for looking at; a torn one shows
	}, nil
}

// preferredURL is the address to tell people: HTTP where there is one.
func preferredURL(listeners []*apiserver.Listener) string {
	for _, l := range listeners {
		if strings.HasPrefix(l.URL(), "http://") {
			return l.URL()
		}
	}
	return listeners[0].URL()
}
