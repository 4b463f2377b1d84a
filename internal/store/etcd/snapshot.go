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
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
)

// restoreRevisionBump is the number of revisions that a restore skips after the snapshot's, so that no revision that
// was returned after the snapshot is used again.
const restoreRevisionBump = 1_000_000_000

// snapshotCatchUpTimeout bounds the time that a snapshot waits until this member has all acknowledged writes.
const snapshotCatchUpTimeout = 3 * time.Second

// Snapshot is part of store.Engine. It writes etcd's own format, the database with a checksum, which Restore and etcd's
// tools read. The snapshot holds all writes that any member acknowledged before. Without a quorum it holds the data of
// this member.
func (e *Engine) Snapshot(ctx context.Context, to io.Writer) error {
	if err := e.checkOpen(ctx); err != nil {
		return err
	}
	caughtUp, cancel := context.WithTimeout(ctx, snapshotCatchUpTimeout)
	_, err := e.client.Get(caughtUp, e.prefix+"berth", clientv3.WithCountOnly())
	cancel()
	if err != nil && ctx.Err() == nil {
		e.config.Log.Warn("the snapshot may lack the last writes: the other members do not have them", "error", err)
	}
	from, err := e.client.Snapshot(ctx)
	if err != nil {
		return e.readError(ctx, err)
	}
	defer from.Close()
	if _, err := io.Copy(to, from); err != nil {
		if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
			return fmt.Errorf("save etcd as %s: %w: etcd lets only its role root do so; save it with etcd's "+
				"own tools, and start the servers with --snapshot-every 0",
				describeUser(e.user), err)
		}
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Restore creates a data directory from a snapshot: a store of one member, whatever members the snapshot's store had.
// For a fleet, the directory is opened with a peer address, and the others join with empty directories. The directory
// must not hold a store yet. election.Reincarnate must follow before anyone else uses the store.
//
// Records keep their revisions, and new revisions begin far above. History is marked as compacted, so that an earlier
// watch gets a resync. A damaged snapshot leaves the directory unchanged.
func Restore(dir string, from io.Reader) (err error) {
	lock, err := lockDirectory(dir)
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

// restore calls etcd's tool, which panics on a damaged database.
func restore(source, made string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	return snapshot.NewV3(etcdlog.New(slog.New(slog.DiscardHandler))).Restore(snapshot.RestoreConfig{
		SnapshotPath:        source,
		Name:                memberName,
		OutputDataDir:       made,
		PeerURLs:            []string{peerURL},
		InitialCluster:      memberName + "=" + peerURL,
		InitialClusterToken: uuid.NewString(), // so that the members of the snapshot's store are refused
		RevisionBump:        restoreRevisionBump,
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
