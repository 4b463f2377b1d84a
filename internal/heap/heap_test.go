package heap

import (
	"runtime"
	"testing"
)

const mb = 1 << 20

// script is looks one after the other, and what came of them.
func script(readings ...reading) (freed int, percents []int) {
	t := tender{free: func() { freed++ }, percent: func(p int) { percents = append(percents, p) }}
	for _, r := range readings {
		t.look(r)
	}
	return freed, percents
}

func TestMemoryIsGivenBackAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		readings []reading
		want     int
	}{
		"after work":                        {[]reading{{0, 50 * mb, 60 * mb}, {500 * mb, 60 * mb, 400 * mb}, {501 * mb, 60 * mb, 400 * mb}, {502 * mb, 60 * mb, 400 * mb}}, 1},
		"not while it works":                {[]reading{{0, 50 * mb, 60 * mb}, {500 * mb, 60 * mb, 400 * mb}, {900 * mb, 60 * mb, 400 * mb}}, 0},
		"nor where it never worked hard":    {[]reading{{0, 50 * mb, 400 * mb}, {5 * mb, 50 * mb, 400 * mb}, {9 * mb, 50 * mb, 400 * mb}}, 0},
		"nor where little is to be won":     {[]reading{{0, 50 * mb, 60 * mb}, {500 * mb, 60 * mb, 80 * mb}, {501 * mb, 60 * mb, 80 * mb}}, 0},
		"nor for what was before it looked": {[]reading{{900 * mb, 50 * mb, 400 * mb}, {901 * mb, 50 * mb, 400 * mb}}, 0},
		"again after more work": {[]reading{
			{0, 50 * mb, 60 * mb},
			{500 * mb, 60 * mb, 400 * mb},
			{501 * mb, 60 * mb, 400 * mb},
			{900 * mb, 60 * mb, 400 * mb},
			{901 * mb, 60 * mb, 400 * mb},
		}, 2},
	} {
		if freed, _ := script(c.readings...); freed != c.want {
			t.Errorf("%s: got %d collections, want %d", name, freed, c.want)
		}
	}
}

func TestLargeHeapsAreCollectedLessOften(t *testing.T) {
	_, got := script(reading{live: 10 * mb}, reading{live: 100 * mb}, reading{live: 120 * mb}, reading{live: 20 * mb})
	if len(got) != 2 || got[0] != percent || got[1] != 100 {
		t.Errorf("percents: got %v, want %d and then 100", got, percent)
	}
}

// The runtime has the figures under the names that are asked for.
func TestSampler(t *testing.T) {
	runtime.GC()
	if r := newSampler().read(); r.allocated == 0 || r.live == 0 || r.held < r.live {
		t.Errorf("reading: got %+v", r)
	}
}
