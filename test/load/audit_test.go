package load_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/load"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at is that many seconds after noon.
func at(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }

func record(s int, what, task, uuid, node string) load.Record {
	return load.Record{At: at(s), What: what, Task: cluster.TaskID(task), UUID: uuid, Node: node, Version: "1", Pid: 1}
}

func TestBelowMinimum(t *testing.T) {
	const lingers = 3 * time.Second
	three := []load.Record{
		record(1, load.Well, "a", "a1", "n1"), record(1, load.Well, "b", "b1", "n2"),
		record(1, load.Well, "c", "c1", "n2"),
	}
	for _, tc := range []struct {
		name   string
		then   []load.Record
		kills  []load.Kill
		leasts []load.Least
		want   int
	}{
		{name: "nothing is given up"},
		{name: "one is given up", then: []load.Record{record(10, load.Term, "a", "a1", "n1")}, want: 1},
		{name: "it ends by itself", then: []load.Record{record(10, load.End, "a", "a1", "n1")}},
		{
			name: "its next attempt is healthy first",
			then: []load.Record{record(9, load.Well, "a", "a2", "n3"), record(13, load.Term, "a", "a1", "n1")},
		},
		{
			name: "its next attempt is ill",
			then: []load.Record{record(9, load.Ill, "a", "a2", "n3"), record(10, load.Term, "a", "a1", "n1")}, want: 1,
		},
		{
			name: "one that never was healthy is given up",
			then: []load.Record{record(9, load.Up, "d", "d1", "n3"), record(10, load.Term, "d", "d1", "n3")},
		},
		{
			name:  "the test killed one, which Berth does not know yet",
			then:  []load.Record{record(9, load.Well, "d", "d1", "n3"), record(13, load.Term, "c", "c1", "n2")},
			kills: []load.Kill{{Node: "n1", At: at(5), Known: at(25)}},
		},
		{
			name:  "the test killed one, which Berth knows",
			then:  []load.Record{record(9, load.Well, "d", "d1", "n3"), record(29, load.Term, "c", "c1", "n2")},
			kills: []load.Kill{{Node: "n1", At: at(5), Known: at(25)}}, want: 1,
		},
		{
			name:   "fewer are wanted",
			then:   []load.Record{record(13, load.Term, "c", "c1", "n2"), record(13, load.Term, "b", "b1", "n2")},
			leasts: []load.Least{{At: at(9), N: 2}}, want: 1,
		},
		{
			name:   "more were wanted just now",
			then:   []load.Record{record(13, load.Term, "c", "c1", "n2")},
			leasts: []load.Least{{At: at(2), N: 2}, {At: at(9), N: 5}},
		},
		{
			name: "another was healthy when its stop came, and not yet when it was given up",
			then: []load.Record{record(9, load.Well, "d", "d1", "n3"), record(11, load.Term, "c", "c1", "n2")}, want: 1,
		},
		{
			name: "it was healthy for a moment only",
			then: []load.Record{
				record(9, load.Well, "d", "d1", "n3"), record(10, load.Term, "d", "d1", "n3"),
				record(13, load.Term, "c", "c1", "n2"),
			}, want: 1,
		},
		{
			name: "another died while it served on",
			then: []load.Record{
				record(7, load.Well, "d", "d1", "n3"), record(11, load.Term, "c", "c1", "n2"),
				record(10, load.End, "a", "a1", "n1"),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := load.BelowMinimum(append(tc.then, three...), tc.kills,
				append([]load.Least{{At: at(0), N: 3}}, tc.leasts...), lingers)
			if len(got) != tc.want {
				t.Errorf("%d faults, want %d: %q", len(got), tc.want, got)
			}
		})
	}
}

func TestExcused(t *testing.T) {
	kills := []load.Kill{{Node: "n1", At: at(10)}}
	for name, tc := range map[string]struct {
		node               string
		started, from, end int
		want               bool
	}{
		"on the dead process":           {"n1", 1, 11, 12, true},
		"in flight when it died":        {"n1", 1, 9, 11, true},
		"before it died":                {"n1", 1, 8, 9, false},
		"on another node":               {"n2", 1, 11, 12, false},
		"on the process that came next": {"n1", 20, 21, 22, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := load.Failure{
				Node: tc.node, Started: at(tc.started), Began: at(tc.from), Ended: at(tc.end),
				Err: errors.New("refused"),
			}
			if diff := cmp.Diff(tc.want, load.Excused(f, kills)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
