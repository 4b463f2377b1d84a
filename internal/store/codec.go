package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// RecordVersion is the newest version of records that this build reads and writes, and RecordMin the oldest that it reads. Which
// one a record is written with, cluster.RecordVersion says.
const (
	RecordVersion = cluster.RecordsPlaced
	RecordMin     = cluster.RecordsFirst
)

// ErrVersion says that a record was written by a build that this one does not understand. If that is a newer one, the
// error is a NewerError too.
var ErrVersion = errors.New("the record has a version that this build does not read")

// NewerError is the ErrVersion of a record of a newer build, which this one must not work beside.
type NewerError struct{ Version int }

// Error is part of error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the record has version %d, and this build reads %d to %d: a newer build wrote it", e.Version, RecordMin, RecordVersion)
}

// Is makes it an ErrVersion.
func (e *NewerError) Is(target error) bool { return target == ErrVersion }

var versionField = []byte(`{"v":`)

// Encode returns the stored form of a record: its JSON with the field "v" in front.
// The record is a struct or a pointer to one; it has no field "v" of its own.
func Encode(record any) ([]byte, error) {
	b, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", record, err)
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("encode %T: not a JSON object", record)
	}
	out := make([]byte, 0, len(versionField)+1+len(b))
	out = append(out, versionField...)
	out = strconv.AppendInt(out, int64(cluster.RecordVersion(record)), 10)
	if len(b) > 2 {
		out = append(out, ',')
	}
	return append(out, b[1:]...), nil
}

// Decode reads the stored form of a record. It returns ErrVersion for one of a version that this build does not read.
func Decode[T any](value []byte) (*T, error) {
	version, err := versionOf(value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("decode record: %w", err)
	case version > RecordVersion:
		return nil, &NewerError{version}
	case version < RecordMin:
		return nil, ErrVersion
	}
	record := new(T)
	if err := json.Unmarshal(value, record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return record, nil
}

// versionOf returns the version of a record, 0 where it has none.
func versionOf(value []byte) (int, error) {
	if at := len(versionField); len(value) > at+1 && bytes.HasPrefix(value, versionField) && isDigit(value[at]) && !isDigit(value[at+1]) {
		return int(value[at] - '0'), nil
	}
	var head struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil || head.V == nil {
		return 0, err
	}
	return *head.V, nil
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// CheckReaders returns an error that wraps ErrReaders and names the servers that do not read what the groups write.
func CheckReaders(groups []Group, servers iter.Seq[Entry[cluster.Server]]) error {
	newest := RecordMin
	for i := range groups {
		for _, op := range groups[i].Ops {
			if v, err := versionOf(op.Value); err == nil {
				newest = max(newest, v)
			}
		}
	}
	if newest == RecordMin {
		return nil
	}
	var older []string
	for e := range servers {
		if s := e.Value; !s.Reads(newest) {
			older = append(older, fmt.Sprintf("%s (%s)", cmp.Or(s.Name, s.ID), s.Version))
		}
	}
	if len(older) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrReaders, strings.Join(older, ", "))
}

// ErrReaders says that servers of an older build would not understand a record. Nothing was written.
var ErrReaders = errors.New("not every server reads such a record yet")
