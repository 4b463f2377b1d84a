package advice_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// sizeIn returns the size before a word of a text.
func sizeIn(t *rapid.T, text, word string) cluster.Bytes {
	before, _, found := strings.Cut(text, word)
	fields := strings.Fields(before)
	if !found || len(fields) < 2 {
		t.Fatalf("%q names no size before %q", text, word)
	}
	size, err := cluster.ParseBytes(strings.Join(fields[len(fields)-2:], " "))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return size
}

// TestSizesInTextsSuffice checks that the sizes in texts place the task: sizes to free and to add are rounded up, and a
// size to request is rounded down, by at most a tenth.
func TestSizesInTextsSuffice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := func(name string, most int64) cluster.Bytes {
			unit := cluster.Bytes(rapid.SampledFrom([]int64{1, 1 << 10, 1 << 20, 1 << 26}).Draw(t, name+" unit"))
			return min(unit*cluster.Bytes(rapid.Int64Range(1, most).Draw(t, name)), 1<<40)
		}
		taken, asked := memory("taken", 2000), memory("asked", 2000)
		room := taken + asked - cluster.Bytes(rapid.Int64Range(1, int64(min(asked, taken))).Draw(t, "lack"))
		fleet := scheduler.NewFleet()
		fleet.SetNode(ready("n1", 1000, room))
		fleet.Reserve(scheduler.Reservation{
			UUID: "u", Task: "default.db.1.0", Node: "n1", Demand: cluster.Demand{Memory: taken},
		})
		task := cluster.Pending{
			Task: "default.web.1.0", Priority: 1, Demand: cluster.Demand{Memory: asked},
		}
		seen := 0
		check := func(text, word string, least, most cluster.Bytes) {
			seen++
			if got := sizeIn(t, text, word); got < least || got > most {
				t.Fatalf("%q: %d bytes, want %d to %d", text, got, least, most)
			}
		}
		for _, sg := range advice.Find(advice.Input{Options: options(), Fleet: fleet, Task: task}).Suggestions {
			for _, c := range sg.Changes {
				if c.Kind == cluster.ChangeFree {
					short := taken + asked - room
					check(c.Text, " memory", short, short+short/10+1)
				}
				if c.Kind == cluster.ChangeLower {
					left := room - taken
					check(c.Text, " memory", left-left/10-1, left)
				}
				if c.Kind == cluster.ChangeAdd {
					check(c.Text, " memory", asked, asked+asked/10+1)
				}
			}
		}
		if seen == 0 {
			t.Fatalf("no suggestion names a size: %d of %d are taken, %d are requested", taken, room, asked)
		}
	})
}
