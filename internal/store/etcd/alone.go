package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store"
)

// ForceAlone creates a store of one member from the data directory of a member whose other members are lost
// permanently. The new store is in another directory, to, which must hold none, and has all the data of this member.
// The given config is the configuration of the later Open, with the old directory. The old directory stays unchanged,
// even if ForceAlone is interrupted, and no process may have it open. The new directory needs twice as much room for a
// while.
//
// Writes that only the lost members had acknowledged are gone, so election.Reincarnate must follow before the new
// directory replaces the old one. The store has a new identity, and the old members cannot join it. Their directories
// must be emptied before they join again.
func ForceAlone(ctx context.Context, config Config, to string) (err error) {
	config = config.withDefaults()
	config.Ballast = -1
	config.PeerURL, config.PeerListen, config.PeerTLS, config.Join = "", "", nil, nil
	member := filepath.Join(config.Dir, "member")
	if _, err := os.Stat(member); err != nil {
		return fmt.Errorf("data directory %s holds no store: %w", config.Dir, errors.Join(store.ErrInvalid, err))
	}
	lock, err := lockDirectory(config.Dir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", config.Dir, err)
	}
	defer lock.Close()
	err = createStore(to, func(scratch string) (newDatabase, error) {
		// Have etcd apply its log to its database, as the only member. This changes the data permanently, so it works
		// on a copy.
		config.Dir = filepath.Join(scratch, "copy")
		path := filepath.Join(scratch, "database")
		if err := os.CopyFS(filepath.Join(config.Dir, "member"), os.DirFS(member)); err != nil {
			return newDatabase{}, err
		}
		return newDatabase{path: path, hasSum: true, bump: restoreRevisionBump}, extract(ctx, config, path)
	})
	if err != nil {
		return fmt.Errorf("force a store of one: %w", err)
	}
	return nil
}

// extract starts the directory's member as the only one, and writes its database to a file, with its sum.
func extract(ctx context.Context, config Config, path string) (err error) {
	e, err := start(ctx, config, func(c *embed.Config) { c.ForceNewCluster = true })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	from, err := e.client.Snapshot(ctx)
	if err != nil {
		return e.readError(ctx, err)
	}
	defer from.Close()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Sync(), file.Close())
}
