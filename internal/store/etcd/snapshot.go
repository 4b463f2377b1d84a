package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/berthd/berth/internal/store"
)

// jump is how far a restore takes the revisions ahead of the snapshot's, so that no
// revision that was handed out after the snapshot is given a second time.
const jump = 1_000_000_000

// snapshotPatience is how long a snapshot waits until this member has what the others acknowledged.
const snapshotPatience = 3 * time.Second

// Snapshot is part of store.Engine. It writes etcd's own form, the database with a checksum, which Restore and etcd's
// tools read. It holds all that any member acknowledged before; where the store has no quorum, and cannot tell, what
// this member has.
func (e *Engine) Snapshot(ctx context.Context, to io.Writer) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	caughtUp, cancel := context.WithTimeout(ctx, snapshotPatience)
	_, err := e.client.Get(caughtUp, e.prefix+"berth", clientv3.WithCountOnly())
	cancel()
	if err != nil && ctx.Err() == nil {
		e.config.Log.Warn("the snapshot may lack the last writes: the other members do not tell of them", "error", err)
	}
	from, err := e.client.Snapshot(ctx)
	if err != nil {
		return e.fault(ctx, err)
	}
	defer from.Close()
	if _, err := io.Copy(to, from); err != nil {
		if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
			return fmt.Errorf("save etcd as %s: %w: etcd lets only its role root do so; save it with etcd's "+
				"own tools, and start the servers with --snapshot-every 0",
				who(e.user), err)
		}
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Restore makes a data directory from a snapshot, to be opened afterwards: a store of one member, whichever members the
// snapshot's had. For a fleet, it is opened with a peer address, and the others join it anew with empty directories.
// The directory must not hold a store yet. store.Reincarnate must follow before anyone else uses it. Records keep their
// revisions; new ones begin far above, and history is marked as compacted, so that a watch from before gets a resync. A
// snapshot that is damaged or cut short leaves the directory as it was.
func Restore(dir string, from io.Reader) (err error) {
	lock, err := take(dir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	defer lock.Close()
	member := filepath.Join(dir, "member")
	if _, err := os.Stat(member); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s holds a store already: %w", dir, store.ErrInvalid)
	}
	scratch, err := os.MkdirTemp(dir, "restore-")
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	source := filepath.Join(scratch, "snapshot")
	if err := save(source, from); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	made := filepath.Join(scratch, "made")
	if err := restore(source, made); err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	if err := os.Rename(filepath.Join(made, "member"), member); err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	return nil
}

// restore calls etcd's tool, which takes a damaged database for a reason to panic.
func restore(source, made string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	return snapshot.NewV3(bridge(slog.New(slog.DiscardHandler))).Restore(snapshot.RestoreConfig{
		SnapshotPath:        source,
		Name:                memberName,
		OutputDataDir:       made,
		PeerURLs:            []string{peerURL},
		InitialCluster:      memberName + "=" + peerURL,
		InitialClusterToken: uuid.NewString(), // the members of the store that the snapshot is of are strangers
		RevisionBump:        jump,
		MarkCompacted:       true,
	})
}

func save(path string, from io.Reader) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Sync(), file.Close())
}
