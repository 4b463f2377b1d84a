package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Desired and observed records of an attempt end with a seal: a hash of the bytes before it. Another program omits the
// seal, or keeps the seal of the record that it changed. Every server therefore recognises a foreign record by the
// record alone, although all fields are valid (P3.9).
//
// The seal is no secret and no protection: an attacker who may write to the store could as well write a service.

var sealField = []byte(`,"seal":"`)

const (
	sealLabel = "berth record 1\n"
	sealBytes = 8
	sealSize  = len(`,"seal":"`) + 2*sealBytes + len(`"}`)
)

// carriesSeal reports whether records of the type carry a seal.
func carriesSeal(record any) bool {
	switch record.(type) {
	case *cluster.Desired, cluster.Desired, *cluster.Observed, cluster.Observed:
		return true
	}
	return false
}

// seal appends the seal to a record's JSON, in place of its last brace.
func seal(out []byte) []byte {
	body := out[:len(out)-1]
	sum := hashForSeal(body)
	body = append(body, sealField...)
	body = hex.AppendEncode(body, sum[:])
	return append(body, '"', '}')
}

// sealHolds reports whether a stored record has a seal that matches its content.
func sealHolds(value []byte) bool {
	at := len(value) - sealSize
	if at < 0 || !bytes.HasPrefix(value[at:], sealField) || !bytes.HasSuffix(value, []byte(`"}`)) {
		return false
	}
	sum := hashForSeal(value[:at])
	return bytes.Equal(value[at+len(sealField):len(value)-2], hex.AppendEncode(nil, sum[:]))
}

// errForeign reports a seal that is missing or does not match.
var errForeign = errors.New("another program than Berth wrote the record: its seal does not match")

// decodeSealed reads a record of an attempt. It returns errForeign if another program than Berth wrote it.
func decodeSealed[T any](value []byte) (*T, error) {
	v, err := Decode[T](value)
	if err == nil && !sealHolds(value) {
		err = errForeign
	}
	return v, err
}

// IsForeign reports whether another program wrote a record at the key of a desired record (P3.9).
func (p Prefix) IsForeign(r Record) bool {
	rest, _ := strings.CutPrefix(r.Key, p.Attempts())
	node, task, ok := strings.Cut(rest, "/")
	if !ok {
		return false
	}
	d, err := decodeSealed[cluster.Desired](r.Value)
	return err != nil || d.Node != node || string(d.Task) != task
}

func hashForSeal(body []byte) [sealBytes]byte {
	h := sha256.New()
	h.Write([]byte(sealLabel))
	h.Write(body)
	return [sealBytes]byte(h.Sum(nil))
}
