package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

// snapshot saves the records under a prefix, and retries as commit does.
func (c *check) snapshot(prefix string) []byte {
	c.Helper()
	for n := 1; ; n++ {
		var out bytes.Buffer
		err := c.Engine.Snapshot(c.Context(), prefix, &out)
		switch {
		case err == nil:
			return out.Bytes()
		case n < attempts && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCompacted)):
			c.Logf("snapshot of %q, attempt %d of %d: %v", prefix, n, attempts, err)
		default:
			c.Fatalf("snapshot of %q: %v", prefix, err)
		}
	}
}

// readSnapshot returns the records in a snapshot, and its description.
func (c *check) readSnapshot(whole []byte) ([]store.Record, store.SnapshotInfo) {
	c.Helper()
	records, info, err := snapshotfile.ReadAll(bytes.NewReader(whole))
	if err != nil {
		c.Fatalf("read the snapshot: %v", err)
	}
	return records, info
}

// testSnapshotFile saves prefixes: each file holds the records that a listing of the prefix has, and no others.
func testSnapshotFile(c *check) {
	c.put("z/a", "1", "z/b", "1", "z/c", "", c.lastKey("z/"), "\xfe", "z0", "foreign", "y/z", "foreign", "z", "foreign")
	c.put("z/a", "2")
	c.delete("z/b")
	for _, prefix := range []string{"z/", "y/", "none/", ""} {
		records, info := c.readSnapshot(c.snapshot(prefix))
		listing := c.list(prefix)
		if diff := cmp.Diff(listing.Records, records, cmpopts.EquateEmpty()); diff != "" {
			c.Errorf("snapshot of %q (-listed +saved):\n%s", prefix, diff)
		}
		if info.Prefix != prefix || info.Saved.IsZero() || info.Build == "" || info.Revision == 0 {
			c.Errorf("snapshot of %q: got %+v", prefix, info)
		}
		for _, r := range records {
			if r.Modified > info.Revision {
				c.Errorf("snapshot of %q at revision %d: %s has revision %d", prefix, info.Revision, r.Key, r.Modified)
			}
		}
	}
	c.wantError(c.Engine.Snapshot(c.Context(), "z", io.Discard), store.ErrInvalid)
}

// snapshotRecords is a number of records that no engine reads in one page.
const snapshotRecords = 2_500

// fillPages writes snapshotRecords records of which a page does not fit into a buffer, and returns the last revision.
func (c *check) fillPages() (last uint64) {
	c.Helper()
	value := strings.Repeat("v", 200)
	batch := min(c.Engine.Limits().Operations, 500)
	for from := 0; from < snapshotRecords; from += batch {
		var g store.Group
		for i := from; i < min(from+batch, snapshotRecords); i++ {
			g.Ops = append(g.Ops, put(fmt.Sprintf("pages/%06d", i), value))
		}
		last = c.commit(g).Revision
	}
	return last
}

// testSnapshotTogether saves records while a writer changes the first and the last of them in one transaction. Each
// snapshot holds both in the same state, and no older one than was acknowledged before it.
func testSnapshotTogether(c *check) {
	const writes = 100
	c.fillPages()
	c.put("pages/000000", "0", "pages/999999", "0")
	var mu sync.Mutex
	acknowledged := 0
	var running sync.WaitGroup
	running.Go(func() {
		for i := 1; i <= writes; i++ {
			value := fmt.Sprint(i)
			_, err := c.Engine.Commit(c.Context(), []store.Group{{
				Ops: []store.Op{put("pages/000000", value), put("pages/999999", value)},
			}})
			if err != nil { // an election on a slow machine; a commit with an unknown result may come late
				c.Logf("commit %d: %v", i, err)
				return
			}
			mu.Lock()
			acknowledged = i
			mu.Unlock()
		}
	})
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	for last := false; !last; {
		select {
		case <-ended:
			last = true
		default:
		}
		mu.Lock()
		least := acknowledged
		mu.Unlock()
		records, _ := c.readSnapshot(c.snapshot("pages/"))
		if len(records) != snapshotRecords+1 {
			c.Fatalf("the snapshot has %d records, want %d", len(records), snapshotRecords+1)
		}
		first, second := string(records[0].Value), string(records[len(records)-1].Value)
		var value int
		if _, err := fmt.Sscan(first, &value); err != nil || first != second || value < least {
			c.Fatalf("one snapshot holds the values %s and %s, and %d was acknowledged before", first, second, least)
		}
	}
}

// testSnapshotCompaction writes and compacts after the first page of a snapshot was read. The snapshot is whole and of
// one revision, or an error says that it is to be saved again; then it can be.
func testSnapshotCompaction(c *check) {
	c.requireHook(c.Compact != nil, "Compact")
	before := c.fillPages()
	var out bytes.Buffer
	once := sync.Once{}
	err := c.Engine.Snapshot(c.Context(), "pages/", writerFunc(func(b []byte) (int, error) {
		once.Do(func() {
			c.delete(fmt.Sprintf("pages/%06d", snapshotRecords-1))
			c.put("pages/later", "1")
			c.Compact()
		})
		return out.Write(b)
	}))
	if err == nil {
		records, info := c.readSnapshot(out.Bytes())
		if len(records) != snapshotRecords || info.Revision < before {
			c.Errorf("the snapshot has %d records of revision %d, want %d of revision %d at least", len(records),
				info.Revision, snapshotRecords, before)
		}
	} else {
		c.wantError(err, store.ErrCompacted)
		if _, err := snapshotfile.Inspect(bytes.NewReader(out.Bytes())); err == nil {
			c.Errorf("what was written before the error reads as a whole snapshot")
		}
	}
	if records, _ := c.readSnapshot(c.snapshot("pages/")); len(records) != snapshotRecords {
		c.Errorf("the next snapshot has %d records, want %d", len(records), snapshotRecords)
	}
}

// writerFunc is a function as a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// testSnapshot copies an engine.
func testSnapshot(c *check) {
	c.requireHook(c.Restore != nil, "Restore")
	c.put("z/a", "1", "z/b", "1", "z/c", "", c.lastKey("z/"), "\xfe")
	c.put("z/a", "2")
	c.delete("z/b")
	saved := c.snapshot("")
	want := c.list("").Records
	c.put("z/late", "1", "z/a", "3")
	engine, err := c.Restore(bytes.NewReader(saved))
	if err != nil {
		c.Fatalf("restore: %v", err)
	}
	c.Engine = engine
	restored := c.list("")
	if diff := cmp.Diff(want, restored.Records, cmpopts.EquateEmpty()); diff != "" {
		c.Fatalf("after a restore (-want +got):\n%s", diff)
	}
	// The engine works on: compares with old revisions hold, and new ones rise.
	result := c.commit(store.Group{
		Compares: []store.Compare{{Key: "z/a", Modified: want[0].Modified}},
		Ops:      []store.Op{put("z/a", "4")},
	})
	c.wantApplied(result, true)
	if result.Revision <= restored.Revision {
		c.Errorf("a commit after a restore at revision %d has %d", restored.Revision, result.Revision)
	}
	c.wantList("z/", "z/a=4", "z/c=", c.lastKey("z/")+"=\xfe")
}

// testSnapshotBack restores a snapshot under a watch that has seen later revisions: the watch must begin with a resync.
func testSnapshotBack(c *check) {
	c.requireHook(c.Restore != nil, "Restore")
	c.put("z/a", "1")
	saved := c.snapshot("")
	for i := range 10 {
		c.put("z/a", "later", fmt.Sprintf("z/%d", i), "later")
	}
	m := c.mirrorOf("z/", 0)
	m.reach(c.list("z/").Revision)
	engine, err := c.Restore(bytes.NewReader(saved))
	if err != nil {
		c.Fatalf("restore: %v", err)
	}
	reopened, was := engine != c.Engine, m.at
	c.Engine = engine
	ahead := c.mirrorOf("z/", m.at)
	for i := range 15 { // so that the revisions pass the watch's position
		c.put("z/a", fmt.Sprint(i))
	}
	between := c.mirrorOf("z/", m.at)
	mirrors := []*mirror{ahead}
	if reopened { // the old watch ended with the old engine; the new engine has its history
		mirrors = append(mirrors, between)
	} else {
		mirrors = append(mirrors, m)
	}
	for i, m := range mirrors {
		b := m.next()
		// A watch that looks only after the revisions have passed its own cannot tell.
		back := i > 0 && !reopened && b.Revision < was
		if !b.Resync || back && !b.WentBack || i > 0 && reopened && b.WentBack {
			c.Fatalf("first batch after a restore: got %+v, want a resync that went back in the watch of before", b)
		}
		m.reach(c.put("z/b", "2").Revision)
	}
}

// testSnapshotFuture opens a watch at a revision that a restored engine has not reached yet.
func testSnapshotFuture(c *check) {
	c.put("z/a", "1")
	m := c.mirrorOf("z/", c.list("").Revision+1_000)
	if b := m.next(); !b.Resync {
		c.Fatalf("first batch: got %+v, want a resync", b)
	}
	m.equal()
	m.reach(c.put("z/b", "2").Revision)
}

// testSnapshotDamaged restores damaged snapshots.
func testSnapshotDamaged(c *check) {
	c.requireHook(c.Restore != nil, "Restore")
	c.put("z/a", "1", "z/b", "1")
	whole := c.snapshot("")
	for _, test := range []struct {
		name string
		data []byte
	}{
		{"empty", nil},
		{"cut short", whole[:len(whole)*2/3]},
		{"something else", bytes.Repeat([]byte("berth"), 1000)},
	} {
		if _, err := c.Restore(bytes.NewReader(test.data)); err == nil {
			c.Errorf("%s: restored, want an error", test.name)
		}
	}
	ended, cancel := context.WithCancel(c.Context())
	cancel()
	if err := c.Engine.Snapshot(ended, "", io.Discard); err == nil {
		c.Errorf("a snapshot with an ended context: got no error")
	}
	if err := c.Engine.Snapshot(c.Context(), "", failingWriter{}); err == nil {
		c.Errorf("a snapshot to a broken writer: got no error")
	}
}

// failingWriter is a writer on a failed disk.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is gone") }
