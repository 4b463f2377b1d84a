package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/batching"
	"github.com/berthd/berth/internal/store/etcd"
)

// OpenIdentity reads the settings and the certificate of a server that others reach; without settings there is neither.
func (s *Server) OpenIdentity() (authority *pki.Authority, err error) {
	if s.settings, err = datadir.ReadSettings(s.Config.DataDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Config.DataDir, datadir.PKIDir)
	if s.settings == nil {
		if _, err := os.Stat(dir); err == nil {
			return nil, &hinted.Error{
				Err: fmt.Errorf("%s holds certificates and no %s: making or joining this server did not end",
					s.Config.DataDir, datadir.SettingsFile),
				Hint: "Do `berth server init` or `berth server join` again.",
			}
		}
		return nil, nil //nolint:nilnil // it serves its own machine alone
	}
	authority, err = pki.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	if s.Config.CertificateLife > 0 {
		authority.Life = s.Config.CertificateLife
	}
	self := pki.Subject{Role: cluster.RoleServer, Name: s.ID}
	s.keeper, err = pki.OpenKeeper(pki.KeeperConfig{
		Dir: dir, Hosts: s.settings.Hosts(), Log: s.Config.Log,
		Renew: func(_ context.Context, csr []byte) ([]byte, error) { // each server signs for itself
			return authority.Sign(csr, self, s.settings.Hosts(), time.Now())
		},
	})
	if err == nil && s.keeper.Subject() != self {
		err = fmt.Errorf("the certificate in %s is that of the %s, and this server's id is %s: the data "+
			"directory is mixed from two servers", dir, s.keeper.Subject(), s.ID)
	}
	return authority, err
}

// openVault reads the secrets key, and makes it where there is none.
func (s *Server) openVault(authority *pki.Authority) (err error) {
	var shared []byte
	if authority != nil {
		shared = authority.KeyPEM()
	}
	s.vault, err = secrets.Open(s.Config.DataDir, shared)
	return err
}

// addresses are those to listen on: where others reach the server, an https one is among them.
func (s *Server) addresses() []string {
	list := slices.Clone(s.Config.Listen)
	if s.settings == nil || slices.ContainsFunc(list, func(a string) bool { return strings.HasPrefix(a, "https://") }) {
		return list
	}
	return append(list, "https://"+everywhere(s.settings.API))
}

// everywhere returns "0.0.0.0:port" for an address, or "[::]:port" for one of IPv6.
func everywhere(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address // readSettings has read it
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.To4() == nil {
		return net.JoinHostPort("::", u.Port())
	}
	return net.JoinHostPort("0.0.0.0", u.Port())
}

// openStore opens the server's own store, or connects to one that runs elsewhere.
func (s *Server) openStore(ctx context.Context) (*etcd.Engine, error) {
	c := s.Config.Store
	if len(c.Endpoints) > 0 {
		engine, err := etcd.Dial(ctx, etcd.DialConfig{
			Endpoints: c.Endpoints, TLS: c.tls(), User: c.User, Password: c.password, Prefix: c.Prefix,
			Log: s.Config.Log,
		})
		return engine, c.hinted(err)
	}
	// With others the store serves only once enough of them are there.
	if s.settings != nil {
		late := time.AfterFunc(quorumPatience, func() {
			s.Config.Log.Warn("waiting for the other servers: the store needs more than half of them", "server",
				s.settings.Name, "peers", s.settings.Peer)
		})
		defer late.Stop()
	}
	return s.OpenOwnStore(ctx)
}

// OpenOwnStore opens the server's own store, and begins one only if there never was any: one that is missing was lost,
// and an empty one in its place would halt a control plane that is well without this server.
func (s *Server) OpenOwnStore(ctx context.Context) (*etcd.Engine, error) {
	config := s.storeConfig()
	if _, err := os.Stat(filepath.Join(config.Dir, "member")); s.settings != nil && s.settings.StoreMade &&
		errors.Is(err, fs.ErrNotExist) {
		return nil, s.lostStore(config.Dir)
	}
	engine, err := etcd.Open(ctx, config)
	if err != nil || s.settings == nil || s.settings.StoreMade {
		return engine, err
	}
	s.settings.StoreMade = true
	if err := s.settings.Write(s.Config.DataDir); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return engine, nil
}

// lostStore says how to go on where a server's store is missing.
func (s *Server) lostStore(dir string) error {
	flag := datadir.Flag(s.Config.DataDir)
	hint := "If it was only moved or not mounted, put it back.\n" +
		"If other servers go on: `berth server remove " + s.settings.Name +
		"` there, then `berth server join` here from an empty data directory.\n" +
		"If this was the only one: `berth operator snapshot restore" + flag + " FILE`."
	if kept, _ := filepath.Glob(dir + ".before-*"); len(kept) > 0 {
		hint += "\nA restore or a recovery may have been interrupted: do it again. What was there before it is " +
			kept[len(kept)-1] + "."
	}
	return &hinted.Error{Err: fmt.Errorf(
		"the store of this server is missing: there is none in %s, and there was one. An empty one is not "+
			"begun in its place", dir), Hint: hint}
}

// quorumPatience is how long the store may take to open until that is worth a line.
const quorumPatience = 5 * time.Second

// storeConfig is that of the server's own store.
func (s *Server) storeConfig() etcd.Config {
	c := etcd.Config{Dir: filepath.Join(s.Config.DataDir, datadir.StoreDir), Log: s.Config.Log, Name: s.ID}
	if s.settings == nil {
		return c
	}
	cert, key, ca := s.keeper.Files()
	c.PeerURL, c.PeerListen = s.settings.Peer, cmp.Or(s.Config.ListenPeers, everywhere(s.settings.Peer))
	c.PeerTLS = &etcd.TLSFiles{Cert: cert, Key: key, CA: ca}
	c.Join = s.settings.Join
	return c
}

// carefulEngine refuses what users write where a server of an older build would not understand it. The control plane is
// not asked: it writes nothing newer than what users have written.
type carefulEngine struct {
	*ledEngine
	// gathered commits what many requests write at once.
	gathered *batching.Engine
	tables   *store.Tables
}

// Commit is part of store.Engine. It returns store.ErrReaders as well.
func (e *carefulEngine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckReaders(groups, e.tables.Snapshot().Servers()); err != nil {
		return store.Result{}, err
	}
	return e.gathered.Commit(ctx, groups)
}

// runTables fills the tables. A store that holds what a newer build wrote ends the server, at its start or later.
func (s *Server) runTables(ctx context.Context) error {
	err := s.tables.Run(ctx)
	if errors.As(err, new(*store.NewerError)) {
		return &hinted.Error{
			Err: err,
			Hint: "Start the newer build of berth here, as on the other servers. To go back " +
				"to this one, first take away what only the newer one knows:\n" +
				"`berth server members` there shows the versions, and the sentence above names a record.",
		}
	}
	return err
}
