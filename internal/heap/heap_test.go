package heap

import (
	"runtime"
	"slices"
	"testing"
)

const mb = 1 << 20

// script runs a sequence of checks and returns their effects.
func script(readings ...reading) (freed int, percents []int) {
	t := pacer{free: func() { freed++ }, percent: func(p int) { percents = append(percents, p) }}
	for _, r := range readings {
		t.check(r)
	}
	return freed, percents
}

// turns returns alternating readings of work and rest, after a first reading without either.
func turns(n int) []reading {
	out := []reading{{0, 50 * mb, 60 * mb}}
	for i := range n {
		at := uint64(i+1) * 500 * mb
		out = append(out, reading{at, 60 * mb, 400 * mb}, reading{at + mb, 60 * mb, 400 * mb})
	}
	return out
}

func TestMemoryIsGivenBackAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		readings []reading
		want     int
	}{
		"after work": {[]reading{
			{0, 50 * mb, 60 * mb},
			{500 * mb, 60 * mb, 400 * mb},
			{501 * mb, 60 * mb, 400 * mb},
			{502 * mb, 60 * mb, 400 * mb},
		}, 1},
		"not while it works": {
			[]reading{{0, 50 * mb, 60 * mb}, {500 * mb, 60 * mb, 400 * mb}, {900 * mb, 60 * mb, 400 * mb}}, 0,
		},
		"nor where it never worked hard": {
			[]reading{{0, 50 * mb, 400 * mb}, {5 * mb, 50 * mb, 400 * mb}, {9 * mb, 50 * mb, 400 * mb}}, 0,
		},
		"nor where little is to be won": {
			[]reading{{0, 50 * mb, 60 * mb}, {500 * mb, 60 * mb, 80 * mb}, {501 * mb, 60 * mb, 80 * mb}}, 0,
		},
		"nor for allocations before the first sample": {
			[]reading{{900 * mb, 50 * mb, 400 * mb}, {901 * mb, 50 * mb, 400 * mb}},
			0,
		},
		"not again directly":  {turns(2), 1},
		"again after a while": {turns(8), 2},
	} {
		if freed, _ := script(c.readings...); freed != c.want {
			t.Errorf("%s: got %d collections, want %d", name, freed, c.want)
		}
	}
}

func TestLargeHeapsAreCollectedLessOften(t *testing.T) {
	_, got := script(
		reading{live: 10 * mb}, reading{live: 100 * mb}, reading{live: 120 * mb}, reading{live: 320 * mb},
		reading{live: 330 * mb},
		reading{live: 2000 * mb}, reading{live: 20 * mb},
	)
	if want := []int{100, 200, 160, 100}; !slices.Equal(got, want) {
		t.Errorf("percents: got %v, want %v", got, want)
	}
}

// The runtime knows the metrics that the sampler reads.
func TestSampler(t *testing.T) {
	runtime.GC()
	if r := newSampler().read(); r.allocated == 0 || r.live == 0 || r.held < r.live {
		t.Errorf("reading: got %+v", r)
	}
}
