package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/berthd/berth/internal/cluster"
)

// A record of what is wanted of an attempt, or of what its agent saw, ends with a seal: a hash of all before it. Whoever writes such a
// record and is not Berth leaves it out, or leaves the one of the record that he changed: so his record is recognised although all its
// fields look right, by every server and without a question to anybody (P3.9). The seal is no secret. It keeps nobody out who means
// harm and may write to the store: he could as well write a service.

var sealField = []byte(`,"seal":"`)

const (
	sealLabel = "berth record 1\n"
	sealBytes = 8
	sealSize  = len(`,"seal":"`) + 2*sealBytes + len(`"}`)
)

// isSealed reports whether records of the kind are sealed.
func isSealed(record any) bool {
	switch record.(type) {
	case *cluster.Desired, cluster.Desired, *cluster.Observed, cluster.Observed:
		return true
	}
	return false
}

// seal puts the seal at the end of a record's JSON, in place of its last brace.
func seal(out []byte) []byte {
	body := out[:len(out)-1]
	sum := sealOf(body)
	body = append(body, sealField...)
	body = hex.AppendEncode(body, sum[:])
	return append(body, '"', '}')
}

// sealHolds reports whether the seal of a stored record is there and is its own.
func sealHolds(value []byte) bool {
	at := len(value) - sealSize
	if at < 0 || !bytes.HasPrefix(value[at:], sealField) || !bytes.HasSuffix(value, []byte(`"}`)) {
		return false
	}
	sum := sealOf(value[:at])
	return bytes.Equal(value[at+len(sealField):len(value)-2], hex.AppendEncode(nil, sum[:]))
}

// Foreign reports whether a stored record of what is wanted of an attempt, or of what its agent saw, was written by somebody else than Berth.
func Foreign(value []byte) bool { return !sealHolds(value) }

// errForeign says that a record's seal is missing, or another's.
var errForeign = errors.New("somebody else than Berth wrote the record: its seal does not hold")

// sealed reads a record and returns errForeign where its seal does not hold.
func sealed[T any](value []byte) (*T, error) {
	v, err := Decode[T](value)
	if err == nil && Foreign(value) {
		return v, errForeign
	}
	return v, err
}

func sealOf(body []byte) [sealBytes]byte {
	h := sha256.New()
	h.Write([]byte(sealLabel))
	h.Write(body)
	return [sealBytes]byte(h.Sum(nil))
}
