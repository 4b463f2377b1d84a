package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/backup"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/store/etcd"
)

// serverConfig is what a server needs.
type serverConfig struct {
	dataDir string   // holds the store, the token, the server's id, its certificates and settings
	listen  []string // addresses as apiserver.Listen takes them
	// listenPeers is the host:port for the other members of the store; "" is that of the advertised address, on all
	// interfaces.
	listenPeers string
	store       storeConfig
	snapshots   snapshotConfig
	egress      egress.Policy // for gates and for queries of scaling
	traces      string        // where spans are sent; "" is nowhere
	// waiters is how many requests may wait for changes at once, and clientWaiters how many of them one client may
	// have; 0 is the usual.
	waiters, clientWaiters int
	// certificateLife is that of the certificates that the server signs; 0 is the usual one.
	certificateLife time.Duration
	// permissions are those of clusters that are made without naming any.
	permissions []cluster.Permission
	// values are the settings by the names of their flags, for operators to see. Nothing in them is secret.
	values map[string]string
	log    *slog.Logger
	// command is what it was started with, for hints; "" is berth server. say, unless nil, tells a person who started
	// it what goes without a flag.
	command string
	say     func(text string)
}

// storeConfig names an etcd that runs elsewhere; without endpoints the store runs in the server.
type storeConfig struct {
	endpoints     []string
	cert, key, ca string
	// user logs in there, with what passwordFile holds or, without one, the environment's storePasswordVariable; "" is
	// nobody.
	user, passwordFile string
	prefix             string // of all keys there; "" or with a slash at its end
}

// snapshotConfig says when the store is saved; every 0 is never.
type snapshotConfig struct {
	every time.Duration
	keep  int
	dir   string // default snapshots in the data directory
}

// serverFlags are the flags of `berth server`.
type serverFlags struct {
	serverConfig
	storeURL       string
	level, profile string
	asked          egressFlags
	grants         string // the permissions as they were written
}

func (f *serverFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.dataDir, "data-dir", defaultDataDir(),
		"folder for the store, the token, certificates and the server's id (default "+dataDirText+")")
	fs.StringArrayVar(&f.listen, "listen", []string{"unix://" + defaultSocket(), defaultHTTP},
		"address to serve, unix:///path, a loopback host:port, or https://host:port; may be given several "+
			"times (default "+socketText+
			" and http://"+defaultHTTP+fmt.Sprintf(
			"; a server that others reach serves https://0.0.0.0:%d besides unless an https address is given)",
			portAPI))
	fs.StringVar(&f.listenPeers, "listen-peers", "",
		"`HOST:PORT` to serve the other members of the store on; default the advertised port on all interfaces")
	f.storeFlags(fs)
	fs.DurationVar(&f.snapshots.every, "snapshot-every", time.Hour, "how often the store is saved; 0 for never")
	fs.IntVar(&f.snapshots.keep, "snapshot-keep", 24, "how many of these snapshots are kept")
	fs.StringVar(&f.snapshots.dir, "snapshot-dir", "", "folder for them; default snapshots in the data directory")
	fs.StringVar(&f.grants, "default-permissions", "",
		"`PERMISSIONS` of clusters that are made without naming any: all, or some with commas between them; "+
			"default none, so that no task reaches more than its own")
	fs.StringVar(&f.traces, "trace-endpoint", "",
		"`URL` that traces are sent to (OpenTelemetry over HTTP), such as http://127.0.0.1:4318; default nowhere")
	f.asked.flags(cmd)
	fs.IntVar(&f.waiters, "max-waiters", 1024,
		"how many requests may wait for changes at once: streams of lists and events, and lists with ?wait; "+
			"more are answered with 429")
	fs.IntVar(&f.clientWaiters, "max-client-waiters", 256,
		"how many of them one token may have, or one user at the unix socket")
	fs.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.profile, "cpu-profile", "", "file to write a CPU profile to, until the server ends")
	fs.DurationVar(&f.certificateLife, "certificate-life", 0,
		"how long the certificates last that this server signs; for tests")
	_ = fs.MarkHidden("certificate-life") // it is there
	ofMachine(cmd, "data-dir", "listen")
}

// check reads what is made of several flags, and returns all that is wrong at once.
func (f *serverFlags) check(cmd *cobra.Command) error {
	var list faults
	f.checkStore(&list)
	if f.snapshots.every < 0 || f.snapshots.every > 0 && f.snapshots.every < backup.LeastEvery {
		list.add("--snapshot-every %v: want at least %v, or 0 for never", f.snapshots.every, backup.LeastEvery)
	}
	if f.snapshots.keep < 1 {
		list.add("--snapshot-keep %d: want at least 1", f.snapshots.keep)
	}
	if f.snapshots.dir == "" {
		f.snapshots.dir = filepath.Join(f.dataDir, "snapshots")
	}
	var err error
	f.permissions, err = cluster.ParsePermissions(f.grants)
	list.check("--default-permissions", err)
	if f.waiters < 1 {
		list.add("--max-waiters %d: want at least 1", f.waiters)
	}
	if f.clientWaiters < 1 {
		list.add("--max-client-waiters %d: want at least 1", f.clientWaiters)
	}
	checkTraces(&list, f.traces)
	f.asked.check(&list)
	f.egress = f.asked.parsed
	if f.listenPeers != "" {
		list.check("--listen-peers", listenable(f.listenPeers))
	}
	if len(f.listen) == 0 {
		list.add("--listen is empty: want at least one address")
	}
	if f.log, err = newLogger(cmd.ErrOrStderr(), f.level); err != nil {
		list.add("--%v", err)
	}
	f.values = map[string]string{}
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) { // names of files, never what is in them
		if flag.Name != "help" && !flag.Hidden {
			f.values[flag.Name] = flag.Value.String()
		}
	})
	return list.err(cmd)
}

// checkTraces notes what is wrong with where traces are sent.
func checkTraces(list *faults, endpoint string) {
	if u, err := url.Parse(endpoint); endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		list.add("--trace-endpoint %q: want http://host:port or https://host:port", endpoint)
	}
}

// checkStore reads the flags about an etcd that runs elsewhere.
func (f *serverFlags) checkStore(list *faults) {
	files := []struct{ flag, path string }{
		{"--store-ca", f.store.ca},
		{"--store-cert", f.store.cert},
		{"--store-key", f.store.key},
		{"--store-password-file", f.store.passwordFile},
	}
	if f.storeURL == "" {
		for _, file := range append(files, struct{ flag, path string }{"--store-user", f.store.user},
			struct{ flag, path string }{"--store-prefix", f.store.prefix}) {
			if file.path != "" {
				list.add("%s is only for an etcd that runs elsewhere: --store is missing", file.flag)
			}
		}
		return
	}
	hosts, ok := strings.CutPrefix(f.storeURL, "etcd://")
	if !ok || hosts == "" {
		list.add("--store %q: want etcd://host:port, with commas between several", f.storeURL)
		return
	}
	if strings.Contains(hosts, "@") { // it is not repeated: there may be a password in it
		list.add("--store: want etcd://host:port; a user is named by --store-user, and the password stands " +
			"in the file of --store-password-file")
		return
	}
	f.store.checkUser(list)
	scheme := "http://"
	if f.store.ca != "" || f.store.cert != "" {
		scheme = "https://"
	}
	for _, host := range splitList([]string{hosts}) {
		address, err := hostPort(strings.TrimPrefix(host, "etcd://"), portEtcd)
		list.check("--store", err)
		f.store.endpoints = append(f.store.endpoints, scheme+address)
	}
	if (f.store.cert == "") != (f.store.key == "") {
		list.add("--store-cert and --store-key belong together: one is missing")
	}
	for _, file := range files {
		if file.path == "" || file.flag == "--store-ca" && file.path == etcd.SystemCA {
			continue
		}
		if _, err := os.Stat(file.path); err != nil {
			list.add("%s %s", file.flag, plainPathError(err))
		}
	}
}

// plainPathError says what is wrong with a file without the name of the call.
func plainPathError(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return err.Error()
}

// tls returns the files that are shown to an etcd that runs elsewhere, or nil for plain http.
func (c *storeConfig) tls() *etcd.TLSFiles {
	if c.ca == "" && c.cert == "" {
		return nil
	}
	return &etcd.TLSFiles{Cert: c.cert, Key: c.key, CA: c.ca}
}

// newServerCommand returns `berth server`.
func (a *app) newServerCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane: store, decisions and API",
		Long: "Runs a control plane: the store, the decisions and the API. Agents on this machine connect " +
			"to one of its addresses.\n" +
			"On unix sockets and loopback addresses only it serves this machine alone; loopback wants the " +
			"token of <data-dir>/token.\n" +
			"A data directory that `berth server init` or `berth server join` made is that of a server " +
			"which other machines reach: over\n" +
			"https with mutual TLS, as one of several that hold the store together.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if !cmd.Flags().Changed("listen") {
				if err := os.MkdirAll(filepath.Dir(defaultSocket()), 0o700); err != nil {
					return fmt.Errorf("make the folder of the socket: %w", err)
				}
			}
			stop, err := profileCPU(f.profile)
			if err != nil {
				return err
			}
			defer stop()
			s, err := openServer(cmd.Context(), f.serverConfig)
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
	f.flags(cmd)
	cmd.AddCommand(a.newServerInitCommand(), a.newServerJoinCommand(), a.newServerMembersCommand(),
		a.newServerPromoteCommand(),
		a.newServerRemoveCommand(), a.newServerRecoverCommand())
	return cmd
}
