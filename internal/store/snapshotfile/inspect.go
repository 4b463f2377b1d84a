package snapshotfile

import (
	"errors"
	"io"

	"github.com/berthd/berth/internal/store"
)

// Inspect reads a snapshot to its end, checks it, and describes its content. Faults of the file are of type *FileError.
func Inspect(from io.Reader) (store.SnapshotInfo, error) {
	return Visit(from, func(store.Record) error { return nil })
}

// ReadAll is Inspect that also returns all records, in the order of their keys.
func ReadAll(from io.Reader) ([]store.Record, store.SnapshotInfo, error) {
	var records []store.Record
	info, err := Visit(from, func(r store.Record) error {
		records = append(records, r)
		return nil
	})
	if err != nil {
		return nil, info, err
	}
	return records, info, nil
}

// Visit is Inspect that passes each record on as it is read. No record may be believed unless Visit returns without an
// error, which includes the errors of each.
func Visit(from io.Reader, each func(store.Record) error) (info store.SnapshotInfo, err error) {
	r, err := NewReader(from)
	if err != nil {
		return info, err
	}
	h := r.Header()
	info.Prefix, info.Revision, info.Saved, info.Build = h.Prefix, h.Revision, h.Time, h.Build
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			info.Size, info.Hash = r.Bytes(), r.Hash()
			return info, nil
		}
		if err != nil {
			return info, err
		}
		info.Add(record)
		if err := each(record); err != nil {
			return info, err
		}
	}
}
