package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store"
)

// ForceAlone makes a data directory, whose other members are lost for good, a store of one that keeps all the data that this member
// has. config is that of the later Open; nobody may have the directory open. What only the lost members had acknowledged
// is gone, so that store.Reincarnate must follow, and the directories of the others must be emptied before they join
// again: the store has a new identity, which the old members are not let in to. What the directory held
// before is kept beside it, under the name that is returned, until somebody deletes it; it needs as much room again.
func ForceAlone(ctx context.Context, config Config) (before string, err error) {
	config = config.withDefaults()
	config.PeerURL, config.PeerListen, config.PeerTLS, config.Join = "", "", nil, nil
	member := filepath.Join(config.Dir, "member")
	if _, err := os.Stat(member); err != nil {
		return "", fmt.Errorf("data directory %s holds no store: %w", config.Dir, errors.Join(store.ErrInvalid, err))
	}
	snapshot := filepath.Join(config.Dir, "forced-snapshot")
	defer func() {
		if gone := os.Remove(snapshot); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	// 1. Have etcd take in what its log holds beyond its database, as the only member.
	if err := extract(ctx, config, snapshot); err != nil {
		return "", fmt.Errorf("force a store of one: %w", err)
	}
	// 2. Make a new store of that: a member that comes back takes it for another one.
	before = filepath.Join(config.Dir, "before-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := os.Rename(member, before); err != nil {
		return "", fmt.Errorf("force a store of one: %w", err)
	}
	file, err := os.Open(snapshot)
	if err == nil {
		err = errors.Join(Restore(config.Dir, file), file.Close())
	}
	if err != nil {
		return "", fmt.Errorf("force a store of one: %w", errors.Join(err, os.Rename(before, member)))
	}
	return before, nil
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
