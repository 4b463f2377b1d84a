package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/batching"
	"github.com/berthd/berth/internal/store/restore"
)

// Home is what a server keeps in its data directory: who it is, its certificate, and which store it uses.
type Home struct {
	Config   Config
	ID       string
	settings *datadir.Settings // nil for a server of its own machine only
	keeper   *pki.Keeper       // nil without settings
}

// OpenIdentity reads the settings and the certificate of a server that other machines reach. Without settings it
// returns nil.
func (h *Home) OpenIdentity() (authority *pki.Authority, err error) {
	if h.settings, err = datadir.ReadSettings(h.Config.DataDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(h.Config.DataDir, datadir.PKIDir)
	if h.settings == nil {
		if _, err := os.Stat(dir); err == nil {
			return nil, &hinted.Error{
				Err: fmt.Errorf("%s contains certificates but no %s: the command that created or joined this server "+
					"did not finish",
					h.Config.DataDir, datadir.SettingsFile),
				Hint: "Run `berth server init` or `berth server join` again.",
			}
		}
		return nil, nil //nolint:nilnil // the server only serves its own machine
	}
	authority, err = pki.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	if h.Config.CertificateLife > 0 {
		authority.Life = h.Config.CertificateLife
	}
	self := pki.Subject{Role: cluster.RoleServer, Name: h.ID}
	h.keeper, err = pki.OpenKeeper(pki.KeeperConfig{
		Dir: dir, Hosts: h.settings.Hosts(), Log: h.Config.Log,
		Renew: func(_ context.Context, csr []byte) ([]byte, error) { // each server signs its own certificate
			return authority.Sign(csr, self, h.settings.Hosts(), time.Now())
		},
	})
	if err == nil && h.keeper.Subject() != self {
		err = fmt.Errorf("the certificate in %s belongs to the %s, but this server'h id is %s: the data "+
			"directory mixes two servers", dir, h.keeper.Subject(), h.ID)
	}
	return authority, err
}

// openVault reads the secrets key, and creates it if it is missing.
func (s *Server) openVault() (err error) {
	s.vault, err = secrets.Open(s.Config.DataDir)
	return err
}

// listenAddresses returns the addresses to listen on. A server that other machines reach has an https address.
func (h *Home) listenAddresses() []string {
	list := slices.Clone(h.Config.Listen)
	if h.settings == nil || slices.ContainsFunc(list, func(a string) bool { return strings.HasPrefix(a, "https://") }) {
		return list
	}
	return append(list, "https://"+onAllInterfaces(h.settings.API))
}

// onAllInterfaces returns "0.0.0.0:port" for an IPv4 address, or "[::]:port" for an IPv6 address.
func onAllInterfaces(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address // ReadSettings has validated it
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.To4() == nil {
		return net.JoinHostPort("::", u.Port())
	}
	return net.JoinHostPort("0.0.0.0", u.Port())
}

// openStore opens the server's own store, or connects to an external one.
func (h *Home) openStore(ctx context.Context) (store.ServerEngine, error) {
	if c := h.Config.Store; len(c.Endpoints) > 0 {
		return dialComplete(ctx, c, h.Config.Log)
	}
	// A store with several members opens once it has a quorum.
	if h.settings != nil {
		late := time.AfterFunc(quorumNoticeDelay, func() {
			h.Config.Log.Warn("waiting for the other servers: the store needs more than half of them", "server",
				h.settings.Name, "peers", h.settings.Peer)
		})
		defer late.Stop()
	}
	return h.OpenOwnStore(ctx)
}

// dialComplete connects to an external store. It refuses a store with an incomplete restore: what such a store lacks
// would count as deleted.
func dialComplete(ctx context.Context, at engines.Location, log *slog.Logger) (store.ServerEngine, error) {
	engine, err := at.Dial(ctx, log)
	if err != nil {
		return nil, err
	}
	err = restore.CheckComplete(ctx, engine, store.DefaultPrefix)
	if err == nil {
		return engine, nil
	}
	if errors.Is(err, restore.ErrIncomplete) {
		err = &hinted.Error{
			Err:  err,
			Hint: "Run the same `berth operator snapshot restore` again. It completes the store.",
		}
	}
	return nil, errors.Join(err, engine.Close())
}

// OpenOwnStore opens the server's own store. It creates a store only for a new server. A missing store was lost, and an
// empty one in its place could halt a healthy control plane.
func (h *Home) OpenOwnStore(ctx context.Context) (store.ServerEngine, error) {
	config := h.ownStore()
	if h.settings != nil && h.settings.StoreMade && !engines.Exists(config.Dir) {
		return nil, h.missingStoreError(config.Dir)
	}
	engine, err := config.Open(ctx)
	if err != nil || h.settings == nil || h.settings.StoreMade {
		return engine, err
	}
	h.settings.StoreMade = true
	if err := h.settings.Write(h.Config.DataDir); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return engine, nil
}

// missingStoreError says what to do if a server's store is missing.
func (h *Home) missingStoreError(dir string) error {
	flag := datadir.Flag(h.Config.DataDir)
	hint := "If the store was only moved or not mounted, put it back.\n" + "If other servers run: `berth server " +
		"remove " + h.settings.Name + "` there, then `berth server join` here from an empty data " +
		"directory.\n" + "If this was the only server: `berth operator snapshot restore" + flag + " FILE`."
	if kept, _ := filepath.Glob(dir + ".before-*"); len(kept) > 0 {
		hint += "\nA restore or a recovery may have been interrupted: run it again. The previous " +
			"store is " + kept[len(kept)-1] + "."
	}
	return &hinted.Error{Err: fmt.Errorf(
		"the store of this server is missing: %s contains none, but there was one. The server does not start "+
			"with an empty store", dir), Hint: hint}
}

// quorumNoticeDelay is the time without a quorum before a log line says so.
const quorumNoticeDelay = 5 * time.Second

// ownStore returns the configuration of the server's own store.
func (h *Home) ownStore() engines.Own {
	c := engines.Own{Dir: filepath.Join(h.Config.DataDir, datadir.StoreDir), Log: h.Config.Log, Name: h.ID}
	if h.settings == nil {
		return c
	}
	c.Cert, c.Key, c.CA = h.keeper.Files()
	c.Peer, c.PeerListen = h.settings.Peer, cmp.Or(h.Config.ListenPeers, onAllInterfaces(h.settings.Peer))
	c.Join = h.settings.Join
	return c
}

// versionedEngine refuses writes of users that an older server in the control plane could not read. The control plane
// itself writes nothing newer than users have written, so it skips the check.
type versionedEngine struct {
	store.Engine
	// batching commits the writes of many requests together.
	batching *batching.Engine
	tables   *store.Tables
}

// Commit implements store.Engine. In addition it returns store.ErrReaders.
func (e *versionedEngine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckReaders(groups, e.tables.Snapshot().Servers()); err != nil {
		return store.Result{}, err
	}
	return e.batching.Commit(ctx, groups)
}

// runTables fills the tables. A record of a newer build ends the server, at its start or later.
func (s *Server) runTables(ctx context.Context) error {
	err := s.tables.Run(ctx)
	if errors.As(err, new(*store.NewerError)) {
		return &hinted.Error{
			Err: err,
			Hint: "Start the newer version of berth here, as on the other servers. To go back to this " +
				"version, first remove what only the newer version knows:\n" + "`berth server members` on " +
				"another server shows the versions, and the message above names a record.",
		}
	}
	return err
}
