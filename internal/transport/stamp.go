package transport

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// missingStamp is the stamp of a service that does not exist.
const missingStamp = "missing"

// ErrDifference reports a difference that cannot be applied: it is from another list, or does not lead to the list of
// its stamp.
var ErrDifference = errors.New("the difference does not fit")

// ServicePlace identifies an address of a service: a task has at most one on a node.
type ServicePlace struct {
	Task string `json:"task"`
	Node string `json:"node"`
}

// Place returns the place of the address.
func (a *ServiceAddress) Place() ServicePlace { return ServicePlace{a.Task, a.Node} }

// Compare orders by task, then node.
func (p ServicePlace) Compare(q ServicePlace) int {
	return cmp.Or(cmp.Compare(p.Task, q.Task), cmp.Compare(p.Node, q.Node))
}

// Equal reports whether two addresses are equal in all fields.
func (a *ServiceAddress) Equal(b *ServiceAddress) bool {
	return a.Task == b.Task && a.Node == b.Node && a.Address == b.Address && maps.Equal(a.Ports, b.Ports)
}

// Sum is the sum of the hashes of addresses, 0 for none. Addresses are added and removed one by one, in any order. The
// stamp of a long list therefore costs only its changes. A Sum is a number of 128 bits. The second word is the higher.
// Two lists do not have the same sum by accident. An attacker who chooses names with equal sums misleads only the
// followers of his own service.
type Sum [2]uint64

// Sum returns the sum of one address.
func (a *ServiceAddress) Sum() Sum {
	h := sha256.New()
	var buf []byte
	word := func(text string) {
		buf = binary.AppendUvarint(buf, uint64(len(text)))
		buf = append(buf, text...)
	}
	word(a.Task)
	word(a.Node)
	word(a.Address)
	for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
		word(name)
		buf = binary.AppendVarint(buf, int64(a.Ports[name]))
	}
	h.Write(buf)
	all := h.Sum(buf[:0])
	return Sum{binary.BigEndian.Uint64(all[8:]), binary.BigEndian.Uint64(all)}
}

// Plus returns the sum of the addresses of both sums.
func (s Sum) Plus(o Sum) Sum {
	low, carry := bits.Add64(s[0], o[0], 0)
	high, _ := bits.Add64(s[1], o[1], carry)
	return Sum{low, high}
}

// Minus returns the sum without the addresses of another.
func (s Sum) Minus(o Sum) Sum {
	low, borrow := bits.Sub64(s[0], o[0], 0)
	high, _ := bits.Sub64(s[1], o[1], borrow)
	return Sum{low, high}
}

// Stamp returns the stamp of a service with these addresses, or of a missing one.
func (s Sum) Stamp(missing bool) string {
	if missing {
		return missingStamp
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s[1])
	binary.BigEndian.PutUint64(b[8:], s[0])
	return hex.EncodeToString(b[:])
}

// sumOf returns the sum of a stamp that Sum.Stamp made.
func sumOf(stamp string) (s Sum, ok bool) {
	if stamp == missingStamp {
		return s, true
	}
	b, err := hex.DecodeString(stamp)
	if err != nil || len(b) != 16 {
		return s, false
	}
	return Sum{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b)}, true
}

// StampOf returns the stamp of a service's address list.
func StampOf(missing bool, list []ServiceAddress) string {
	var s Sum
	for i := range list {
		s = s.Plus(list[i].Sum())
	}
	return s.Stamp(missing)
}

// Onto applies t to base, the known list under a stamp, and returns the new list, ordered by task, then node. It does
// not change base. A whole list replaces base. A difference that does not fit returns ErrDifference, and base stays
// valid.
func (t *ServiceUpdate) Onto(stamp string, base []ServiceAddress) ([]ServiceAddress, error) {
	if t.Since == "" {
		return t.Addresses, nil
	}
	sum, ok := sumOf(stamp)
	if !ok || t.Since != stamp {
		return nil, fmt.Errorf("%w: it is from %q, and %q is known", ErrDifference, t.Since, stamp)
	}
	if t.Since == t.Stamp && len(t.Gone)+len(t.Addresses) == 0 {
		return base, nil
	}
	list := make([]ServiceAddress, 0, max(0, len(base)+len(t.Addresses)-len(t.Gone)))
	gone, come := t.Gone, t.Addresses
	for i := range base {
		b := &base[i]
		for len(come) > 0 && come[0].Place().Compare(b.Place()) < 0 {
			sum, list, come = sum.Plus(come[0].Sum()), append(list, come[0]), come[1:]
		}
		switch {
		case len(gone) > 0 && gone[0] == b.Place():
			sum, gone = sum.Minus(b.Sum()), gone[1:]
		case len(come) > 0 && come[0].Place() == b.Place():
			sum, list, come = sum.Minus(b.Sum()).Plus(come[0].Sum()), append(list, come[0]), come[1:]
		default:
			list = append(list, *b)
		}
	}
	for i := range come {
		sum, list = sum.Plus(come[i].Sum()), append(list, come[i])
	}
	// Removed places that are absent from base, or in another order, are left over in gone. The sum shows all other
	// faults.
	if len(gone) > 0 || sum.Stamp(t.Missing) != t.Stamp {
		return nil, fmt.Errorf("%w: it does not lead from %q to %q", ErrDifference, t.Since, t.Stamp)
	}
	return list, nil
}
