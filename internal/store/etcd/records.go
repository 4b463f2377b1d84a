package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/berthd/berth/internal/store"
)

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

// recordOf converts a record of etcd.
func recordOf(kv *mvccpb.KeyValue) store.Record {
	return store.Record{
		Key: string(kv.Key), Value: kv.Value, Created: uint64(kv.CreateRevision), Modified: uint64(kv.ModRevision),
	}
}
