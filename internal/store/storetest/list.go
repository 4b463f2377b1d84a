package storetest

import (
	"fmt"
	"sync"

	"github.com/berthd/berth/internal/store"
)

// testList lists prefixes and checks the records and their order.
func testList(c *check) {
	if got := c.list(""); len(got.Records) != 0 || got.Revision == 0 {
		c.Fatalf("an empty engine: got %+v, want no record, and a revision above 0", got)
	}
	last := c.put("p/b", "1", "p/a", "1", "p/a/x", "1", "p", "1", "p0", "1", c.lastKey("p/"), "1", "o/z", "1", "q/a",
		"1").Revision
	c.wantList("p/", "p/a=1", "p/a/x=1", "p/b=1", c.lastKey("p/")+"=1")
	c.wantList("p/a/", "p/a/x=1")
	c.wantList("none/")
	c.wantList("", "o/z=1", "p=1", "p/a=1", "p/a/x=1", "p/b=1", c.lastKey("p/")+"=1", "p0=1", "q/a=1")
	if got := c.list("none/").Revision; got != last {
		c.Errorf("the revision of an empty listing: got %d, want %d", got, last)
	}
}

// testListMany lists more than one page.
func testListMany(c *check) {
	const records = 25_000
	batch := min(c.Engine.Limits().Operations, 5000)
	for from := 0; from < records; from += batch {
		var g store.Group
		for i := from; i < min(from+batch, records); i++ {
			g.Ops = append(g.Ops, put(fmt.Sprintf("many/%06d", i), "v"))
		}
		c.commit(g)
	}
	c.put("many0", "beside")
	got := c.list("many/").Records
	for i, r := range got {
		if want := fmt.Sprintf("many/%06d", i); r.Key != want {
			c.Fatalf("record %d: got key %s, want %s", i, r.Key, want)
		}
	}
	if len(got) != records {
		c.Fatalf("got %d records, want %d", len(got), records)
	}
	if all := len(c.list("").Records); all != records+1 {
		c.Fatalf("got %d records in all, want %d", all, records+1)
	}
}

// testListTogether lists two records while a writer changes both in one transaction: every listing holds both in the
// same state.
func testListTogether(c *check) {
	const writes = 200
	var running sync.WaitGroup
	running.Go(func() {
		for i := range writes {
			value := fmt.Sprint(i)
			if _, err := c.Engine.Commit(c.Context(),
				[]store.Group{{Ops: []store.Op{put("t/a", value)}}, {Ops: []store.Op{put("t/z", value)}}}); err != nil {
				c.Errorf("commit: %v", err)
			}
		}
	})
	defer running.Wait()
	for last := uint64(0); ; {
		listing, err := c.Engine.List(c.Context(), "t/")
		if err != nil {
			c.Errorf("list: %v", err)
			return
		}
		if listing.Revision < last {
			c.Errorf("a listing at revision %d came after one at %d", listing.Revision, last)
		}
		last = listing.Revision
		if len(listing.Records) == 0 {
			continue
		}
		if len(listing.Records) != 2 || string(listing.Records[0].Value) != string(listing.Records[1].Value) {
			c.Errorf("a torn listing: %v", formatRecords(listing.Records))
			return
		}
		for _, r := range listing.Records {
			if r.Modified > listing.Revision {
				c.Errorf("a listing at revision %d holds a record of revision %d", listing.Revision, r.Modified)
			}
		}
		if string(listing.Records[0].Value) == fmt.Sprint(writes-1) {
			return
		}
	}
}
