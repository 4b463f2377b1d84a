package feasibility_test

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

func TestMatches(t *testing.T) {
	node := &fleet.Node{
		Name: "n1.example", Arch: "amd64", OS: "linux", Kernel: "6.1.0-18-amd64",
		Executors: []string{"containerd", "process"},
		Labels: cluster.Labels{
			"zone": "b", "class": "big", "gpus": "4", "load": "0.5", "release": "v1.10",
			"word": "many",
		},
	}
	bare := &fleet.Node{Name: "bare"}
	for _, test := range []struct {
		text string
		want bool
		bare bool // the result on a node without attributes
	}{
		{"node.name = n1.example", true, false},
		{"node.arch = amd64", true, false},
		{"node.arch != arm64", true, true},
		{"node.os = linux", true, false},
		{"node.class = big", true, false},
		{"label.zone = b", true, false},
		{"label.zone = a", false, false},
		{"label.zone != b", false, true},
		{"label.zone != a", true, true},
		{"label.zone in (a, b)", true, false},
		{"label.zone in (a, c)", false, false},
		{"label.zone not-in (a, b)", false, true},
		{"label.zone not-in (a, c)", true, true},
		{"label.zone exists", true, false},
		{"label.rack exists", false, false},
		{"label.rack != 1", true, true},

		{"label.gpus > 3", true, false},
		{"label.gpus > 4", false, false},
		{"label.gpus < 10", true, false}, // as numbers, not as text
		{"label.gpus < 4.5", true, false},
		{"label.load < 1", true, false},
		{"label.load > 0.25", true, false},
		{"label.gpus < many", false, false},
		{"label.word > 1", false, false},
		{"label.gpus < NaN", false, false},
		{"label.gpus > NaN", false, false},

		{"node.kernel >= 6.1", true, false},
		{"node.kernel >= 6.1.0", true, false},
		{"node.kernel >= 6.1.1", false, false},
		{"node.kernel >= 5.10", true, false},
		{"node.kernel >= 6.10", false, false}, // as versions, not as numbers
		{"node.kernel <= 6.1", true, false},
		{"node.kernel <= 6.0.99", false, false},
		{"label.release >= 1.9", true, false},
		{"label.release <= v1.10.0", true, false},
		{"label.word >= 1", false, false},
		{"label.gpus >= x", false, false},
		{"label.gpus >= .1", false, false},
		{"label.gpus <= 99999999999999999999999", true, false},
		{"label.gpus >= 0000000000000000000000003", true, false},

		{"node.executor = containerd", true, false},
		{"node.executor = process", true, false},
		{"node.executor = fake", false, false},
		{"node.executor != process", false, true}, // one of them is
		{"node.executor != fake", true, true},
		{"node.executor in (fake, process)", true, false},
		{"node.executor not-in (fake, process)", false, true},
		{"node.executor exists", true, false},

		{"node.colour != red", false, false}, // no such attribute: its meaning is unknown
		{"node.colour exists", false, false},
		{"colour = red", false, false},
		{"label.zone ~ b", false, false}, // no such operator
	} {
		t.Run(test.text, func(t *testing.T) {
			c := readConstraint(test.text)
			if got := feasibility.Matches(c, node); got != test.want {
				t.Errorf("node: got %v, want %v", got, test.want)
			}
			if got := feasibility.Matches(c, bare); got != test.bare {
				t.Errorf("bare node: got %v, want %v", got, test.bare)
			}
			if got := feasibility.Text(c); got != test.text {
				t.Errorf("text: got %q", got)
			}
		})
	}
}

func TestTextOfConstraint(t *testing.T) {
	for _, test := range []struct {
		name string
		c    cluster.Constraint
		want string
	}{
		{"the default operator", cluster.Constraint{Attribute: "label.zone", Value: "b"}, "label.zone = b"},
		{"an empty value", cluster.Constraint{Attribute: "label.zone", Op: cluster.OpNotEqual}, `label.zone != ""`},
		{"no values", cluster.Constraint{Attribute: "label.zone", Op: cluster.OpIn}, "label.zone in ()"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := feasibility.Text(test.c); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// FuzzMatches compares the operators with each other, for arbitrary values.
func FuzzMatches(f *testing.F) {
	for _, s := range []string{"", "b", "6.1.0-18-amd64", "v2", "1.", "..", "-1", "1e9", "NaN", "inf", "0x10", "\xff"} {
		f.Add(s, "6.1")
		f.Add("6.1", s)
	}
	f.Fuzz(func(t *testing.T, have, want string) {
		node := &fleet.Node{Labels: cluster.Labels{"x": have}}
		holds := func(op cluster.ConstraintOp) bool {
			return feasibility.Matches(
				cluster.Constraint{Attribute: "label.x", Op: op, Value: want, Values: []string{want}}, node)
		}
		if holds(cluster.OpEqual) == holds(cluster.OpNotEqual) {
			t.Error("= and != agree")
		}
		if holds(cluster.OpIn) == holds(cluster.OpNotIn) || holds(cluster.OpIn) != holds(cluster.OpEqual) {
			t.Error("in does not fit not-in or =")
		}
		if holds(cluster.OpLess) && holds(cluster.OpMore) {
			t.Error("< and > both match")
		}
		if have == want && holds(cluster.OpAtLeast) != holds(cluster.OpAtMost) {
			t.Error("a version is not equal to itself")
		}
		if have == want && (holds(cluster.OpLess) || holds(cluster.OpMore)) {
			t.Error("a number differs from itself")
		}
	})
}

// readConstraint reads the format of feasibility.Text.
func readConstraint(text string) cluster.Constraint {
	f := strings.SplitN(text, " ", 3)
	c := cluster.Constraint{Attribute: f[0], Op: cluster.ConstraintOp(f[1])}
	switch c.Op {
	case cluster.OpExists:
	case cluster.OpIn, cluster.OpNotIn:
		c.Values = strings.Split(strings.Trim(f[2], "()"), ", ")
	default:
		c.Value = f[2]
	}
	return c
}
