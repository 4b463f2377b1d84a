package sim

import (
	"sync"
	"time"
)

// chance decides what happens to single messages: the nth roll on a link is a hash of the seed, the link and n, so
// rolls on one link do not depend on what happens on others.
type chance struct {
	seed uint64
	mu   sync.Mutex
	n    map[string]uint64
}

func newChance(seed uint64) *chance { return &chance{seed: seed, n: map[string]uint64{}} }

// roll returns the link's next number.
func (c *chance) roll(link string) dice {
	c.mu.Lock()
	c.n[link]++
	n := c.n[link]
	c.mu.Unlock()
	h := c.seed*0x9e3779b97f4a7c15 + n
	for i := range len(link) {
		h = (h ^ uint64(link[i])) * 0x100000001b3
	}
	return dice(mix(h))
}

// dice is a number of which any part can be used once.
type dice uint64

// of returns a number from 0 to n-1 and uses up that much of the dice.
func (d *dice) of(n int) int {
	v := int(uint64(*d) % uint64(n))
	*d = dice(mix(uint64(*d) + 0x9e3779b97f4a7c15))
	return v
}

// span returns a duration from 0 up to d.
func (d *dice) span(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(d.of(int(limit)))
}

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
