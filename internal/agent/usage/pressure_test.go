package usage

import (
	"testing"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
)

func TestShortOfMemory(t *testing.T) {
	const gib = cluster.GiB
	for name, test := range map[string]struct {
		c    Thresholds
		s    facts.Scarcity
		want string
	}{
		"plenty": {s: facts.Scarcity{Stall: -1, Free: 8 * gib, Total: 16 * gib}},
		"little is free": {
			s:    facts.Scarcity{Stall: -1, Free: gib / 2, Total: 16 * gib},
			want: "97% of the machine is used",
		},
		"little is free, no stall": {s: facts.Scarcity{Stall: 0, Free: gib / 2, Total: 16 * gib}},
		"tasks stall": {
			s:    facts.Scarcity{Stall: 12, Free: 8 * gib, Total: 16 * gib},
			want: "tasks stall 12% of the time",
		},
		"the tasks' group is full": {s: facts.Scarcity{
			Stall: -1, Free: 8 * gib, Total: 16 * gib,
			Used: 98 * cluster.MiB, Limit: 100 * cluster.MiB,
		}, want: "the tasks use 98% of their 100 MiB"},
		"a full group, no stall": {s: facts.Scarcity{
			Stall: 0, Free: 8 * gib, Total: 16 * gib,
			Used: 98 * cluster.MiB, Limit: 100 * cluster.MiB,
		}, want: "the tasks use 98% of their 100 MiB"},
		"a threshold of its own": {
			c: Thresholds{Free: 60},
			s: facts.Scarcity{Stall: 0, Free: 8 * gib, Total: 16 * gib}, want: "50% of the machine is used",
		},
		"a stall of its own": {
			c: Thresholds{Stall: 1},
			s: facts.Scarcity{Stall: 1, Free: 8 * gib, Total: 16 * gib}, want: "tasks stall 1% of the time",
		},
		"nothing could be found out": {s: facts.Scarcity{Stall: -1}},
	} {
		if got := test.c.exceededThresholds(&test.s, 1); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
