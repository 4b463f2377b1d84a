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
	"github.com/berthd/berth/internal/store/recordjson"
)

// RecordVersion is the newest version of records that this build reads and writes. RecordMin is the oldest version that
// it reads. cluster.RecordVersion decides the version of each record that is written.
const (
	RecordVersion = cluster.RecordsFirst
	RecordMin     = 1 // the build before the first release writes 1 to 4
)

// ErrVersion reports a record of a version that this build does not read. If a newer build wrote the record, the error
// is a NewerError too.
var ErrVersion = errors.New("the record has a version that this build does not read")

// NewerError is the ErrVersion of a record that a newer build wrote. This build must not work on the same store.
type NewerError struct{ Version int }

// Error is part of error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the record has version %d, and this build reads %d to %d: a newer build wrote it", e.Version,
		RecordMin, RecordVersion)
}

// Is makes a NewerError an ErrVersion.
func (e *NewerError) Is(target error) bool { return target == ErrVersion }

var versionField = []byte(`{"v":`)

// Encode returns the stored form of a record: its JSON with the field "v" in front.
// The record is a struct or a pointer to one; it has no field "v" of its own.
//
// The steps of a large job or cron are packed, see MaxPlainBytes.
func Encode(record any) ([]byte, error) {
	out, err := encodePlain(record)
	if err != nil || len(out) <= MaxPlainBytes {
		return out, err
	}
	form, err := packedForm(record)
	if err != nil || form == nil {
		return out, err
	}
	return encodePlain(form)
}

// encodePlain returns the stored form of a record without packing anything.
func encodePlain(record any) ([]byte, error) {
	f := versionedOutput{version: cluster.RecordVersion(record)}
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
		if carriesSeal(record) {
			out = seal(out)
		}
		return out, nil
	}
}

// versionedOutput collects a record's JSON from the encoder behind the version field, so that the JSON is copied once.
type versionedOutput struct {
	version int
	out     []byte
	size    int // bytes of the record's own JSON, without the new line at its end
}

// Write is part of io.Writer.
func (f *versionedOutput) Write(b []byte) (int, error) {
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

// Decode reads the stored form of a record. It returns ErrVersion for a version that this build does not read.
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
	if _, leading := leadingVersion(value); leading {
		if recordjson.Read(value, len(versionField)+1, record) {
			return record, nil
		}
		*record = *new(T)
	}
	if err := unmarshal(value, record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return record, nil
}

// versionOf returns the version of a record, 0 if the record has none.
func versionOf(value []byte) (int, error) {
	if v, leading := leadingVersion(value); leading {
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

// leadingVersion returns the version of a record whose first field is a version of one digit, as Encode writes it.
func leadingVersion(value []byte) (v int, leading bool) {
	at := len(versionField)
	if len(value) > at+1 && bytes.HasPrefix(value, versionField) && isDigit(value[at]) && !isDigit(value[at+1]) {
		return int(value[at] - '0'), true
	}
	return 0, false
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// CheckReaders returns an error that wraps ErrReaders if a server cannot read the records that the groups write. The
// error names those servers.
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

// ErrReaders reports a record that servers of an older build cannot read. Nothing was written.
var ErrReaders = errors.New("not every server reads such a record yet")
