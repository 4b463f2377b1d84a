package main

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

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd"
)

// serverID returns the server's own name, made at its first start.
func serverID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(b))
		if _, err := uuid.Parse(id); err != nil {
			return "", &hintedError{
				fmt.Errorf("%s holds %.60q, which is no id of a server", path, id),
				"Put the id back that `berth server members` on another server, or the CN of pki/self.crt, " +
					"tells. If there is neither certificate nor store yet, delete the file: a new id is made.",
			}
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the server's id: %w", err)
	}
	id := uuid.NewString()
	if err := replaceFile(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("write the server's id: %w", err)
	}
	return id, nil
}

// openIdentity reads the settings and the certificate of a server that others reach; without settings there is neither.
func (s *server) openIdentity() (authority *pki.Authority, err error) {
	if s.settings, err = readSettings(s.config.dataDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.config.dataDir, pkiDir)
	if s.settings == nil {
		if _, err := os.Stat(dir); err == nil {
			return nil, &hintedError{
				fmt.Errorf("%s holds certificates and no %s: making or joining this server did not end",
					s.config.dataDir, settingsFile),
				"Do `berth server init` or `berth server join` again.",
			}
		}
		return nil, nil //nolint:nilnil // it serves its own machine alone
	}
	authority, err = pki.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	if s.config.certificateLife > 0 {
		authority.Life = s.config.certificateLife
	}
	self := pki.Subject{Role: cluster.RoleServer, Name: s.id}
	s.keeper, err = pki.OpenKeeper(pki.KeeperConfig{
		Dir: dir, Hosts: s.settings.hosts(), Log: s.config.log,
		Renew: func(_ context.Context, csr []byte) ([]byte, error) { // each server signs for itself
			return authority.Sign(csr, self, s.settings.hosts(), time.Now())
		},
	})
	if err == nil && s.keeper.Subject() != self {
		err = fmt.Errorf("the certificate in %s is that of the %s, and this server's id is %s: the data "+
			"directory is mixed from two servers", dir, s.keeper.Subject(), s.id)
	}
	return authority, err
}

// openVault reads the secrets key, and makes it where there is none.
func (s *server) openVault(authority *pki.Authority) (err error) {
	var shared []byte
	if authority != nil {
		shared = authority.KeyPEM()
	}
	s.vault, err = secrets.Open(s.config.dataDir, shared)
	return err
}

// addresses are those to listen on: where others reach the server, an https one is among them.
func (s *server) addresses() []string {
	list := slices.Clone(s.config.listen)
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
func (s *server) openStore(ctx context.Context) (*etcd.Engine, error) {
	c := s.config.store
	if len(c.endpoints) > 0 {
		engine, err := etcd.Dial(ctx, etcd.DialConfig{
			Endpoints: c.endpoints, TLS: c.tls(), User: c.user, Password: c.password, Prefix: c.prefix,
			Log: s.config.log,
		})
		return engine, c.hinted(err)
	}
	// With others the store serves only once enough of them are there.
	if s.settings != nil {
		late := time.AfterFunc(quorumPatience, func() {
			s.config.log.Warn("waiting for the other servers: the store needs more than half of them", "server",
				s.settings.Name, "peers", s.settings.Peer)
		})
		defer late.Stop()
	}
	return s.openOwnStore(ctx)
}

// openOwnStore opens the server's own store, and begins one only if there never was any: one that is missing was lost,
// and an empty one in its place would halt a control plane that is well without this server.
func (s *server) openOwnStore(ctx context.Context) (*etcd.Engine, error) {
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
	if err := s.settings.write(s.config.dataDir); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return engine, nil
}

// lostStore says how to go on where a server's store is missing.
func (s *server) lostStore(dir string) error {
	flag := dataDirFlag(s.config.dataDir)
	hint := "If it was only moved or not mounted, put it back.\n" +
		"If other servers go on: `berth server remove " + s.settings.Name +
		"` there, then `berth server join` here from an empty data directory.\n" +
		"If this was the only one: `berth operator snapshot restore" + flag + " FILE`."
	if kept, _ := filepath.Glob(dir + ".before-*"); len(kept) > 0 {
		hint += "\nA restore or a recovery may have been interrupted: do it again. What was there before it is " +
			kept[len(kept)-1] + "."
	}
	return &hintedError{fmt.Errorf(
		"the store of this server is missing: there is none in %s, and there was one. An empty one is not "+
			"begun in its place", dir), hint}
}

// quorumPatience is how long the store may take to open until that is worth a line.
const quorumPatience = 5 * time.Second

// storeConfig is that of the server's own store.
func (s *server) storeConfig() etcd.Config {
	c := etcd.Config{Dir: filepath.Join(s.config.dataDir, storeDir), Log: s.config.log, Name: s.id}
	if s.settings == nil {
		return c
	}
	cert, key, ca := s.keeper.Files()
	c.PeerURL, c.PeerListen = s.settings.Peer, cmp.Or(s.config.listenPeers, everywhere(s.settings.Peer))
	c.PeerTLS = &etcd.TLSFiles{Cert: cert, Key: key, CA: ca}
	c.Join = s.settings.Join
	return c
}

// carefulEngine refuses what users write where a server of an older build would not understand it. The control plane is
// not asked: it writes nothing newer than what users have written.
type carefulEngine struct {
	*ledEngine
	// gathered commits what many requests write at once.
	gathered *store.BatchingEngine
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
func (s *server) runTables(ctx context.Context) error {
	err := s.tables.Run(ctx)
	if errors.As(err, new(*store.NewerError)) {
		return &hintedError{err, "Start the newer build of berth here, as on the other servers. To go back " +
			"to this one, first take away what only the newer one knows:\n" +
			"`berth server members` there shows the versions, and the sentence above names a record."}
	}
	return err
}
