package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// RecordVersion is the version of the records that this build writes. It reads this one only.
const RecordVersion = 1

// ErrVersion says that a record was written by a build that this one does not understand.
var ErrVersion = errors.New("the record has a version that this build does not read")

var versionField = []byte(`{"v":1`)

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
	out := make([]byte, 0, len(versionField)+len(b))
	out = append(out, versionField...)
	if len(b) > 2 {
		out = append(out, ',')
	}
	return append(out, b[1:]...), nil
}

// Decode reads the stored form of a record. It returns ErrVersion for one of another version.
func Decode[T any](value []byte) (*T, error) {
	if !bytes.HasPrefix(value, versionField) || len(value) == len(versionField) || isDigit(value[len(versionField)]) {
		var head struct {
			V *int `json:"v"`
		}
		if err := json.Unmarshal(value, &head); err != nil {
			return nil, fmt.Errorf("decode record: %w", err)
		}
		if head.V == nil || *head.V != RecordVersion {
			return nil, ErrVersion
		}
	}
	record := new(T)
	if err := json.Unmarshal(value, record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return record, nil
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
