// Package engines opens the store of a server: one that runs in the server's process, or an external one by the scheme
// of its URL. It also makes a server's own store from a snapshot. No other package names a driver.
package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul"
	"github.com/berthd/berth/internal/store/etcd"
	"github.com/berthd/berth/internal/store/remote"
)

// The schemes of the URL of an external store.
const (
	SchemeEtcd   = "etcd"
	SchemeConsul = "consul"
)

// Port returns the usual port of a store with a scheme, and false for a scheme that Dial does not accept.
func Port(scheme string) (int, bool) {
	switch scheme {
	case SchemeEtcd:
		return datadir.PortEtcd, true
	case SchemeConsul:
		return datadir.PortConsul, true
	}
	return 0, false
}

// Own configures a store that runs in the server's process. Only Dir is required.
type Own struct {
	// Dir is the data directory. The store is created if it is missing.
	Dir string
	// Name is the id of the server.
	Name string
	Log  *slog.Logger
	// Peer is the https address for the other members of the store; "" means that there are none. PeerListen is the
	// host:port to listen on for them.
	Peer, PeerListen string
	// Cert, Key and CA are the files of the certificate that is shown to the other members.
	Cert, Key, CA string
	// Join lists the members that a new member joins.
	Join []store.Member
}

// Open opens the server's own store. With other members it returns once the store has a quorum, or after a while
// without one.
func (o Own) Open(ctx context.Context) (store.ServerEngine, error) {
	c := etcd.Config{
		Dir: o.Dir, Name: o.Name, Log: o.Log, PeerURL: o.Peer, PeerListen: o.PeerListen, Join: o.Join,
	}
	if o.Cert != "" {
		c.PeerTLS = &etcd.TLSFiles{Cert: o.Cert, Key: o.Key, CA: o.CA}
	}
	engine, err := etcd.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return engine, nil
}

// Exists reports whether a data directory holds a store, which may be unreadable.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "member"))
	return !errors.Is(err, fs.ErrNotExist)
}

// Restore creates a store with one member in a data directory, from a snapshot. The directory must hold no store.
// election.Reincarnate must follow before anyone else uses the store. A damaged snapshot leaves the directory
// unchanged.
func Restore(dir string, from io.Reader) error { return etcd.Restore(dir, from) }

// ForceAlone creates a store with one member in the directory to, from the data directory of a member whose other
// members are lost for good. name is the id of the server. The old directory stays unchanged. election.Reincarnate must
// follow before the new directory replaces the old one.
func ForceAlone(ctx context.Context, dir, name, to string) error {
	return etcd.ForceAlone(ctx, etcd.Config{Dir: dir, Name: name}, to)
}

// Dial connects to an external store, and returns once it answered. The errors say what an operator can do.
func (l Location) Dial(ctx context.Context, log *slog.Logger) (store.ServerEngine, error) {
	switch l.Scheme {
	case SchemeEtcd:
		engine, err := etcd.Dial(ctx, etcd.DialConfig{
			Endpoints: l.Endpoints, TLS: l.tls(), User: l.User, Password: l.readPassword, Prefix: l.Prefix,
			Remedy: l.etcdHint, Log: log,
		})
		if err != nil {
			return nil, l.addHint(err)
		}
		return engine, nil
	case SchemeConsul:
		engine, err := consul.Dial(ctx, consul.DialConfig{
			Endpoints: l.Endpoints, TLS: l.tls(), Token: l.readToken, Datacenter: l.Datacenter, Prefix: l.Prefix,
			Remedy: l.consulHint, Log: log,
		})
		if err != nil {
			return nil, l.addHint(err)
		}
		return engine, nil
	}
	return nil, fmt.Errorf("no driver for a store %s://", l.Scheme)
}

// tls returns the TLS files for an external store, or nil for plain http.
func (l Location) tls() *remote.TLSFiles {
	if l.CA == "" && l.Cert == "" {
		return nil
	}
	return &remote.TLSFiles{Cert: l.Cert, Key: l.Key, CA: l.CA}
}
