package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

const (
	// restoreRevisionBump is the number of revisions that a restore skips after the snapshot's, so that no revision
	// that was returned after the snapshot is used again.
	restoreRevisionBump = 1_000_000_000
	// maxRestoredRevision is the highest revision of a snapshot that a restore accepts.
	maxRestoredRevision = math.MaxInt64 - 2*restoreRevisionBump
	// snapshotCatchUpTimeout bounds the time that a snapshot waits until this member has all acknowledged writes.
	snapshotCatchUpTimeout = 3 * time.Second
	// snapshotPage is the number of records in one read of a snapshot: a snapshot holds no more of them in memory.
	snapshotPage = 1_000
	// restoreCommitBytes is how many bytes of records a restore holds in memory.
	restoreCommitBytes = 16 << 20
)

// Snapshot is part of store.Engine. Without a quorum, the snapshot of an embedded store holds the data of this member.
func (e *Engine) Snapshot(ctx context.Context, prefix string, to io.Writer) error {
	if err := store.CheckPrefix(prefix); err != nil {
		return err
	}
	if err := e.checkOpen(ctx); err != nil {
		return err
	}
	var writer *snapshotfile.Writer
	var writeErr error
	write := func(p *clientv3.GetResponse) (err error) {
		if writer == nil {
			header := snapshotfile.NewHeader(prefix, uint64(p.Header.Revision))
			if writer, err = snapshotfile.NewWriter(to, header); err != nil {
				return err
			}
		}
		for _, kv := range p.Kvs {
			if err := writer.Add(e.record(kv)); err != nil {
				return err
			}
		}
		return nil
	}
	err := e.scan(ctx, prefix, snapshotPage, func(p *clientv3.GetResponse) error {
		writeErr = write(p)
		return writeErr
	}, e.snapshotReads(ctx)...)
	switch {
	case writeErr != nil:
		return writeErr
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("%w: %w", store.ErrCompacted, err)
	case err != nil:
		return e.readError(ctx, err)
	}
	return writer.Close()
}

// snapshotReads returns how the pages of a snapshot are read. A member of this process first waits until it has all
// acknowledged writes; then its own data suffice. An etcd elsewhere answers each read with its quorum.
func (e *Engine) snapshotReads(ctx context.Context) []clientv3.OpOption {
	if e.server == nil {
		return nil
	}
	caughtUp, cancel := context.WithTimeout(ctx, snapshotCatchUpTimeout)
	defer cancel()
	_, err := e.client.Get(caughtUp, e.prefix+"berth", clientv3.WithCountOnly())
	if err != nil && ctx.Err() == nil {
		e.config.Log.Warn("the snapshot may lack the last writes: the other members do not have them", "error", err)
	}
	return []clientv3.OpOption{clientv3.WithSerializable()}
}

// Restore creates a data directory from a snapshot: a store of one member. For a fleet, the directory is opened with a
// peer address, and the others join with empty directories. The directory must not hold a store yet.
// election.Reincarnate must follow before anyone else uses the store.
//
// Records keep their revisions, and new revisions begin far above that of the snapshot. History is marked as compacted,
// so that an earlier watch gets a resync. A damaged snapshot leaves the directory unchanged.
func Restore(dir string, from io.Reader) error {
	return createStore(dir, func(scratch string) (newDatabase, error) {
		path := filepath.Join(scratch, "database")
		bump, err := writeDatabase(path, from)
		if err != nil {
			return newDatabase{}, fmt.Errorf("read snapshot: %w", err)
		}
		return newDatabase{path: path, bump: bump}, nil
	})
}

// newDatabase is a file that holds etcd's database. With hasSum its SHA-256 follows the database, as etcd writes it. A
// store that is created from it begins bump revisions after the last one in it.
type newDatabase struct {
	path   string
	hasSum bool
	bump   uint64
}

// createStore creates the store of one member in a directory, from a database that prepare writes below a temporary
// directory. After an error the directory holds no store.
func createStore(dir string, prepare func(scratch string) (newDatabase, error)) (err error) {
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
	source, err := prepare(scratch)
	if err != nil {
		return err
	}
	made := filepath.Join(scratch, "made")
	if err := makeMember(source, made); err != nil {
		return fmt.Errorf("create the store: %w", err)
	}
	if err := os.Rename(filepath.Join(made, "member"), member); err != nil {
		return fmt.Errorf("create the store: %w", err)
	}
	return nil
}

// makeMember calls etcd's tool, which panics on a damaged database.
func makeMember(source newDatabase, made string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	return snapshot.NewV3(etcdlog.New(slog.New(slog.DiscardHandler))).Restore(snapshot.RestoreConfig{
		SnapshotPath:        source.path,
		SkipHashCheck:       !source.hasSum,
		Name:                memberName,
		OutputDataDir:       made,
		PeerURLs:            []string{peerURL},
		InitialCluster:      memberName + "=" + peerURL,
		InitialClusterToken: uuid.NewString(), // so that the members of the snapshot's store are refused
		RevisionBump:        source.bump,
		MarkCompacted:       true,
	})
}

// writeDatabase writes the records of a snapshot into a new database of etcd, each with its own revisions. It returns
// the number of revisions between the last record and those of the new store.
func writeDatabase(path string, from io.Reader) (bump uint64, err error) {
	reader, err := snapshotfile.NewReader(from)
	if err != nil {
		return 0, err
	}
	revision := reader.Header().Revision
	if revision > maxRestoredRevision {
		return 0, fmt.Errorf("its revision %d is above %d, the highest that etcd can continue from: %w", revision,
			uint64(maxRestoredRevision), store.ErrInvalid)
	}
	file := backend.NewDefaultBackend(etcdlog.New(slog.New(slog.DiscardHandler)), path)
	defer func() { err = errors.Join(err, file.Close()) }()
	tx := file.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafeCreateBucket(schema.Key)
	schema.UnsafeCreateMetaBucket(tx)
	tx.Unlock()
	last, pending := uint64(0), 0
	// The records of one transaction have one revision, and differ in the second part of etcd's revision. The number of
	// the record serves as that part.
	for part := int64(0); ; part++ {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			file.ForceCommit()
			return restoreRevisionBump + revision - last, nil
		}
		if err != nil {
			return 0, err
		}
		value, err := proto.Marshal(&mvccpb.KeyValue{
			Key: []byte(r.Key), Value: r.Value, CreateRevision: int64(r.Created), ModRevision: int64(r.Modified),
			Version: 1,
		})
		if err != nil {
			return 0, fmt.Errorf("encode %s: %w", r.Key, err)
		}
		at := mvcc.RevToBytes(mvcc.Revision{Main: int64(r.Modified), Sub: part}, mvcc.NewRevBytes())
		tx.LockOutsideApply()
		tx.UnsafePut(schema.Key, at, value)
		tx.Unlock()
		last = max(last, r.Modified)
		if pending += len(value); pending > restoreCommitBytes {
			pending = 0
			file.ForceCommit()
		}
	}
}
