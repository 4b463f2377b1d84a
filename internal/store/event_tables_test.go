package store_test

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// The tables know the size of the event log, also after batches were replaced, deleted, and deleted and written again
// between two looks of the watch.
func TestSizeOfTheEventLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		write := func(id, message string) {
			t.Helper()
			value, err := store.Encode(&cluster.EventBatch{ID: id, Events: []cluster.Event{{Message: message}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.engine.Commit(t.Context(),
				[]store.Group{{Ops: []store.Op{{Key: p.Event(id), Value: value}}}}); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(id string) {
			t.Helper()
			if _, err := w.engine.Commit(t.Context(),
				[]store.Group{{Ops: []store.Op{{Key: p.Event(id), Delete: true}}}}); err != nil {
				t.Fatal(err)
			}
		}
		check := func(after string) {
			t.Helper()
			list, err := w.engine.List(t.Context(), string(p)+"event/")
			if err != nil {
				t.Fatal(err)
			}
			s := w.now()
			var want, got cluster.Bytes
			for _, r := range list.Records {
				want += cluster.Bytes(len(r.Value))
			}
			inLog := 0
			for e := range s.EventBatches() {
				got += s.EventSize(e.Value.ID)
				inLog++
			}
			if s.EventBytes() != want || got != want || inLog != len(list.Records) || s.EventCount() != inLog {
				t.Errorf("after %s: the log has %d bytes in %d batches (%d bytes and %d batches by one), want %d in %d", after,
					s.EventBytes(), s.EventCount(), got, inLog, want, len(list.Records))
			}
		}
		check("nothing")
		for i := range 5 {
			write(fmt.Sprint("b", i), "short")
		}
		check("five writes")
		write("b1", "a longer message")
		check("a longer message")
		remove("b2")
		remove("absent")
		check("a deletion")
		remove("b3") // both changes are one for a watch
		write("b3", "again")
		check("a batch that was deleted and written again")
	})
}
