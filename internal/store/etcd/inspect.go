package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
)

// SnapshotInfo describes the content of a snapshot.
type SnapshotInfo = store.SnapshotInfo

// sectorBytes is the sector size of a database file. A snapshot is a database, a whole number of sectors, followed by
// its SHA-256.
const sectorBytes = 512

// Inspect reads a snapshot to its end, compares its hash, and describes its content. It needs room for a copy in the
// folder of temporary files. A damaged snapshot is an error that wraps store.ErrInvalid.
func Inspect(from io.Reader) (info SnapshotInfo, err error) {
	dir, err := os.MkdirTemp("", "berth-snapshot-")
	if err != nil {
		return info, fmt.Errorf("make room for a copy: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "db")
	if err := save(path, from); err != nil {
		return info, fmt.Errorf("read snapshot: %w", err)
	}
	if info.Size, info.Hash, err = checkHash(path); err != nil {
		return info, err
	}
	if err := inspect(path, &info, func(store.Record) {}); err != nil {
		return info, fmt.Errorf("read snapshot: %w", err)
	}
	return info, nil
}

// ReadSnapshot reads a snapshot as Inspect does, and also returns its records in the order of their keys: all records
// of the store at the revision in info.
func ReadSnapshot(from io.Reader) (records []store.Record, info SnapshotInfo, err error) {
	dir, err := os.MkdirTemp("", "berth-snapshot-")
	if err != nil {
		return nil, info, fmt.Errorf("make room for a copy: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "db")
	if err := save(path, from); err != nil {
		return nil, info, fmt.Errorf("read snapshot: %w", err)
	}
	if info.Size, info.Hash, err = checkHash(path); err != nil {
		return nil, info, err
	}
	err = inspect(path, &info, func(r store.Record) { records = append(records, r) })
	if err != nil {
		return nil, info, fmt.Errorf("read snapshot: %w", err)
	}
	return records, info, nil
}

// errNoSnapshot is the error of a file that is no snapshot.
var errNoSnapshot = snapshotError("it is no snapshot, or is cut short: its size is not that of one")

// snapshotError describes a fault of a snapshot's file.
type snapshotError string

// Error returns it.
func (e snapshotError) Error() string { return string(e) }

// Is makes a snapshotError a store.ErrInvalid.
func (snapshotError) Is(target error) bool { return target == store.ErrInvalid }

// checkHash compares a snapshot's data with the hash at its end.
func checkHash(path string) (size int64, hash string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return 0, "", err
	}
	size = stat.Size()
	if size%sectorBytes != sha256.Size {
		return size, "", errNoSnapshot
	}
	data, stated := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(data, file, size-sha256.Size); err != nil {
		return size, "", fmt.Errorf("read snapshot: %w", err)
	}
	if _, err := io.ReadFull(file, stated); err != nil {
		return size, "", fmt.Errorf("read snapshot: %w", err)
	}
	if !bytes.Equal(data.Sum(nil), stated) {
		return size, "", fmt.Errorf("the snapshot is damaged: its data do not have its hash: %w", store.ErrInvalid)
	}
	return size, hex.EncodeToString(stated), nil
}

// inspect opens a copy with etcd's own code, which panics on a damaged database. It visits the records in the order of
// their keys.
func inspect(path string, info *SnapshotInfo, each func(store.Record)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v: %w", p, store.ErrInvalid)
		}
	}()
	log := etcdlog.New(slog.New(slog.DiscardHandler))
	file := backend.NewDefaultBackend(log, path)
	defer file.Close()
	data := mvcc.NewStore(log, file, nil, mvcc.StoreConfig{})
	defer data.Close()
	info.Nouns, info.Leaders = map[string]int{}, map[string]cluster.Leader{}
	from := []byte{0}
	for {
		result, err := data.Range(context.Background(), from, []byte{}, mvcc.RangeOptions{Limit: page})
		if err != nil {
			return err
		}
		info.Revision = uint64(result.Rev)
		for i := range result.KVs {
			record := recordOf(result.KVs[i])
			info.Add(record)
			each(record)
		}
		if len(result.KVs) < page {
			return nil
		}
		from = append(bytes.Clone(result.KVs[len(result.KVs)-1].Key), 0)
	}
}

// recordOf converts a record of etcd.
func recordOf(kv *mvccpb.KeyValue) store.Record {
	return store.Record{
		Key: string(kv.Key), Value: kv.Value, Created: uint64(kv.CreateRevision), Modified: uint64(kv.ModRevision),
	}
}
