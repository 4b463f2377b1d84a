package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/berthd/berth/internal/cluster"
)

// A record of what is wanted of an attempt, or of what its agent saw, ends with a seal: a hash of all before it.
// Whoever writes such a record and is not Berth leaves it out, or leaves the one of the record that he changed: so his
// record is recognised although all its fields look right, by every server and without a question to anybody (P3.9).
// The seal is no secret. It keeps nobody out who means harm and may write to the store: he could as well write a
// service. A record without a seal is one of a former build where servers of such a build may have written it
// (cluster.Seals).

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

// errForeign says that a record's seal is missing where there has to be one, or another's.
var errForeign = errors.New("somebody else than Berth wrote the record: its seal does not hold")

// sealed reads a record of an attempt on a node, and returns errForeign where somebody else than Berth wrote it.
func sealed[T any](s *state, node string, c *Change) (*T, error) {
	v, err := Decode[T](c.Value)
	if err != nil || sealHolds(c.Value) || !bytes.Contains(c.Value, sealField[1:]) && !s.demandsSeal(node, c.Modified) {
		return v, err
	}
	return v, errForeign
}

// demandsSeal reports whether all of Berth's servers sealed the records of attempts on a node at a revision. One of a
// build before seals writes them without, and is known before it writes any.
func (s *state) demandsSeal(node string, revision uint64) bool {
	domain := cluster.DefaultDomain
	if n, ok := s.nodes.Get(node); ok && n.Value.Domain != "" {
		domain = n.Value.Domain
	}
	e, ok := s.seals.Get(domain)
	leader, led := s.leaders.Get(domain)
	return ok && led && revision > e.Value.After && e.Value.Is(leader.Value) && s.AllSeal()
}

// AllSeal reports whether each server writes records of attempts with a seal.
func (s *Snapshot) AllSeal() bool {
	for e := range s.Servers() {
		if !e.Value.Reads(cluster.RecordsSealed) {
			return false
		}
	}
	return true
}

func sealOf(body []byte) [sealBytes]byte {
	h := sha256.New()
	h.Write([]byte(sealLabel))
	h.Write(body)
	return [sealBytes]byte(h.Sum(nil))
}
