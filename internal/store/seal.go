package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/berthd/berth/internal/cluster"
)

// Desired and observed records of an attempt end with a seal: a hash of the bytes before it. Another program omits the
// seal, or keeps the seal of the record that it changed. Every server therefore recognises a foreign record by the
// record alone, although all fields are valid (P3.9).
//
// The seal is no secret and no protection: an attacker who may write to the store could as well write a service. A
// record without a seal is accepted as one of an earlier build where servers of such a build may have written it
// (cluster.Seals).

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

// errForeign reports a required seal that is missing, or a seal that does not match.
var errForeign = errors.New("another program than Berth wrote the record: its seal does not match")

// decodeSealed reads a record of an attempt on a node. It returns errForeign if another program than Berth wrote it.
func decodeSealed[T any](s *state, node string, c *Change) (*T, error) {
	v, err := Decode[T](c.Value)
	if err != nil || sealHolds(c.Value) ||
		!bytes.Contains(c.Value, sealField[1:]) && !s.requiresSeal(node, c.Modified) {
		return v, err
	}
	return v, errForeign
}

// requiresSeal reports whether all servers of Berth sealed the records of attempts on a node at a revision. A server of
// a build without seals announces its build before it writes any record.
func (s *state) requiresSeal(node string, revision uint64) bool {
	domain := cluster.DefaultDomain
	if n, ok := s.nodes.Get(node); ok && n.Value.Domain != "" {
		domain = n.Value.Domain
	}
	e, ok := s.seals.Get(domain)
	leader, led := s.leaders.Get(domain)
	return ok && led && revision > e.Value.After && e.Value.WrittenBy(leader.Value) && s.AllSeal()
}

// AllSeal reports whether every server writes records of attempts with a seal.
func (s *serverTables) AllSeal() bool {
	for e := range s.Servers() {
		if !e.Value.Reads(cluster.RecordsSealed) {
			return false
		}
	}
	return true
}

func hashForSeal(body []byte) [sealBytes]byte {
	h := sha256.New()
	h.Write([]byte(sealLabel))
	h.Write(body)
	return [sealBytes]byte(h.Sum(nil))
}
