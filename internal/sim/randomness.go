package sim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"
)

// randomness decides the fate of each message. The nth roll for a message of a link is a hash of the seed, the link,
// the kind of the message and n. It does not depend on other links and kinds, or on the order of simultaneous messages.
type randomness struct {
	seed uint64
	mu   sync.Mutex
	n    map[uint64]uint64 // rolls so far, by the hash of the link and the message
}

func newRandomness(seed uint64) *randomness { return &randomness{seed: seed, n: map[uint64]uint64{}} }

// roll returns the number for the next message of its kind on the link.
func (c *randomness) roll(link string, what ...string) dice {
	name := strings.Join(append([]string{link}, what...), "\x00")
	c.mu.Lock()
	key := hashed(0, name)
	c.n[key]++
	n := c.n[key]
	c.mu.Unlock()
	return dice(mix(hashed(c.seed*0x9e3779b97f4a7c15+n, name)))
}

// at returns the number of a moment. Equal calls at one moment get equal numbers.
func (c *randomness) at(who string, now time.Duration) dice {
	return dice(mix(hashed(c.seed*0x9e3779b97f4a7c15+uint64(now), who)))
}

// hashed is FNV-1a that starts from a number.
func hashed(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

// identity returns a UUID that follows from a number.
func identity(h uint64) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], mix(h))
	binary.BigEndian.PutUint64(b[8:], mix(h+1))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// dice is a random number. Each call of a method uses up a part of it.
type dice uint64

// below returns a number from 0 to n-1 and uses up that much of the dice.
func (d *dice) below(n int) int {
	v := int(uint64(*d) % uint64(n))
	*d = dice(mix(uint64(*d) + 0x9e3779b97f4a7c15))
	return v
}

// span returns a duration from 0 up to d.
func (d *dice) span(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(d.below(int(limit)))
}

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
