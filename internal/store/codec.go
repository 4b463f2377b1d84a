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

// RecordVersion is the newest version of records that this build reads and writes, and RecordMin the oldest that it
// reads. Which one a record is written with, cluster.RecordVersion says.
const (
	RecordVersion = cluster.RecordsSealed
	RecordMin     = cluster.RecordsFirst
)

// ErrVersion says that a record was written by a build that this one does not understand. If that is a newer one, the
// error is a NewerError too.
var ErrVersion = errors.New("the record has a version that this build does not read")

// NewerError is the ErrVersion of a record of a newer build, which this one must not work beside.
type NewerError struct{ Version int }

// Error is part of error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the record has version %d, and this build reads %d to %d: a newer build wrote it", e.Version,
		RecordMin, RecordVersion)
}

// Is makes it an ErrVersion.
func (e *NewerError) Is(target error) bool { return target == ErrVersion }

var versionField = []byte(`{"v":`)

// Encode returns the stored form of a record: its JSON with the field "v" in front.
// The record is a struct or a pointer to one; it has no field "v" of its own.
func Encode(record any) ([]byte, error) {
	f := framed{version: cluster.RecordVersion(record)}
	if err := json.NewEncoder(&f).Encode(record); err != nil {
		return nil, fmt.Errorf("encode %T: %w", record, err)
	}
	out := f.out[:len(f.out)-1] // the encoder ends it with a new line
	switch begin := len(out) - f.size; {
	case f.size < 2 || out[begin] != '{':
		return nil, fmt.Errorf("encode %T: not a JSON object", record)
	case f.size == 2:
		return append(out[:begin], '}'), nil
	default:
		out[begin] = ','
		if isSealed(record) {
			out = seal(out)
		}
		return out, nil
	}
}

// framed takes a record's JSON as the encoder writes it, behind the version: so it is copied once.
type framed struct {
	version int
	out     []byte
	size    int // of the record's own JSON, without the new line at its end
}

// Write is part of io.Writer.
func (f *framed) Write(b []byte) (int, error) {
	if f.out == nil {
		f.out = make([]byte, 0, len(versionField)+2+len(b))
		f.out = append(f.out, versionField...)
		f.out = strconv.AppendInt(f.out, int64(f.version), 10)
		f.size = -1
	}
	f.out = append(f.out, b...)
	f.size += len(b)
	return len(b), nil
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
	if _, usual := usualVersion(value); usual {
		if r := (reader{in: value, at: len(versionField) + 1}); r.record(record) {
			return record, nil
		}
		*record = *new(T)
	}
	if err := json.Unmarshal(value, record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return record, nil
}

// versionOf returns the version of a record, 0 where it has none.
func versionOf(value []byte) (int, error) {
	if v, usual := usualVersion(value); usual {
		return v, nil
	}
	var head struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil || head.V == nil {
		return 0, err
	}
	return *head.V, nil
}

// usualVersion returns the version of a record that has it where Encode writes it, as a single digit.
func usualVersion(value []byte) (v int, usual bool) {
	at := len(versionField)
	if len(value) > at+1 && bytes.HasPrefix(value, versionField) && isDigit(value[at]) && !isDigit(value[at+1]) {
		return int(value[at] - '0'), true
	}
	return 0, false
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
