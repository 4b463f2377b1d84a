package eventlog

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/api"
)

// TestSlowEventReader fills the queue of a reader that reads nothing. Further events are counted, and adding never
// blocks.
func TestSlowEventReader(t *testing.T) {
	q := newEventQueue(3, eventQuery{})
	for i := range 10 {
		q.add(&liveEvent{view: api.EventView{ID: fmt.Sprintf("b.%d", i)}})
	}
	items, gap := q.take()
	if len(items) != 3 || gap != (api.EventGap{Lost: 7, First: "b.3", Last: "b.9"}) {
		t.Errorf("%d items, %+v", len(items), gap)
	}
	q.add(&liveEvent{view: api.EventView{ID: "b.10"}})
	if items, gap := q.take(); len(items) != 1 || gap.Lost != 0 {
		t.Errorf("%d items, %+v", len(items), gap)
	}
}
