package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store"
)

// ForceAlone makes, of a data directory whose other members are lost for good, a store of one in another directory, to,
// which must hold none; it has all the data that this member has. config is that of the later Open, with the old
// directory, which is left as it is, also when this is interrupted; nobody may have it open, and the new one needs
// twice as much room for a while. What only the lost members had acknowledged is gone, so that store.Reincarnate must
// follow, before the new directory takes the old one's place. The directories of the others must be emptied before they
// join again: the store has a new identity, which the old members are not let in to.
func ForceAlone(ctx context.Context, config Config, to string) (err error) {
	config = config.withDefaults()
	config.Ballast = -1
	config.PeerURL, config.PeerListen, config.PeerTLS, config.Join = "", "", nil, nil
	member := filepath.Join(config.Dir, "member")
	if _, err := os.Stat(member); err != nil {
		return fmt.Errorf("data directory %s holds no store: %w", config.Dir, errors.Join(store.ErrInvalid, err))
	}
	lock, err := take(config.Dir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", config.Dir, err)
	}
	defer lock.Close()
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("force a store of one: %w", err)
	}
	scratch, err := os.MkdirTemp(to, "force-")
	if err != nil {
		return fmt.Errorf("force a store of one: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	// 1. Have etcd take in what its log holds beyond its database, as the only member: of a copy, for that changes it
	//    for good.
	snapshot := filepath.Join(scratch, "snapshot")
	config.Dir = filepath.Join(scratch, "copy")
	if err = os.CopyFS(filepath.Join(config.Dir, "member"), os.DirFS(member)); err == nil {
		err = extract(ctx, config, snapshot)
	}
	if err != nil {
		return fmt.Errorf("force a store of one: %w", err)
	}
	// 2. Make a new store of that: a member that comes back takes it for another one.
	file, err := os.Open(snapshot)
	if err != nil {
		return fmt.Errorf("force a store of one: %w", err)
	}
	if err := errors.Join(Restore(to, file), file.Close()); err != nil {
		return fmt.Errorf("force a store of one: %w", err)
	}
	return nil
}

// extract starts the directory's member as the only one, and writes a snapshot of it.
func extract(ctx context.Context, config Config, path string) (err error) {
	e, err := start(ctx, config, func(c *embed.Config) { c.ForceNewCluster = true })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(e.Snapshot(ctx, file), file.Sync(), file.Close())
}
