package storetest

import (
	"context"

	"github.com/berthd/berth/internal/store"
)

// revision returns the revision of a prefix.
func (c *check) revision(prefix string) uint64 {
	c.Helper()
	revision, err := c.Engine.Revision(c.Context(), prefix)
	if err != nil {
		c.Fatalf("revision of %q: %v", prefix, err)
	}
	return revision
}

// testRevision writes under a prefix and elsewhere. The revision of the prefix covers every write under it and never
// goes back, and a watch reaches it.
func testRevision(c *check) {
	if got := c.revision("w/"); got == 0 {
		c.Errorf("the revision of an empty engine is 0")
	}
	m := c.mirrorOf("w/", 0)
	m.next()
	before := uint64(0)
	for _, step := range []struct {
		name  string
		write func() store.Result
	}{
		{"a record", func() store.Result { return c.put("w/a", "1", "w/b", "1") }},
		{"a change", func() store.Result { return c.put("w/a", "2") }},
		{"elsewhere", func() store.Result { return c.put("v/a", "1") }},
		{"a deletion", func() store.Result { return c.delete("w/b") }},
		{"a deletion elsewhere", func() store.Result { return c.delete("v/a") }},
		{"nothing", func() store.Result { return c.commit() }},
		{"the last record", func() store.Result { return c.delete("w/a") }},
	} {
		written := step.write().Revision
		got := c.revision("w/")
		if got < written || got < before {
			c.Errorf("%s: got revision %d, want at least %d and %d", step.name, got, written, before)
		}
		before = got
		if listed := c.list("w/").Revision; listed < got {
			c.Errorf("%s: a listing at revision %d came after revision %d", step.name, listed, got)
		}
		m.reach(got)
	}

	_, err := c.Engine.Revision(c.Context(), "w")
	c.wantError(err, store.ErrInvalid)
	ended, cancel := context.WithCancel(c.Context())
	cancel()
	_, err = c.Engine.Revision(ended, "w/")
	c.wantError(err, context.Canceled)
}

// testRevisionOfOthers writes through another client. The revision covers its writes under the prefix immediately. In
// an engine that counts the changes of each prefix separately, its writes elsewhere do not raise the revision of the
// prefix.
func testRevisionOfOthers(c *check) {
	c.requireHook(c.Other != nil, "Other")
	other := &check{T: c.T, Subject: Subject{Engine: c.Other()}}
	c.put("w/a", "1")
	m := c.mirrorOf("w/", 0)
	m.next()
	for _, write := range []func() store.Result{
		func() store.Result { return other.put("w/a", "2") },
		func() store.Result { return other.put("w/b", "1") },
		func() store.Result { return other.delete("w/a") },
	} {
		written := write().Revision
		got := c.revision("w/")
		if got < written {
			c.Errorf("got revision %d after another client wrote at %d", got, written)
		}
		m.reach(got)
	}
	elsewhere := other.put("v/a", "1").Revision
	for what, got := range map[string]uint64{"revision": c.revision("w/"), "listing": c.list("w/").Revision} {
		if separate := got < elsewhere; separate != c.PrefixRevisions {
			c.Errorf("%s: got %d after another client wrote elsewhere at %d; each prefix has its own: %v", what, got,
				elsewhere, c.PrefixRevisions)
		}
	}
	if got := c.revision(""); got < elsewhere {
		c.Errorf("the revision of everything is %d, and the last write was at %d", got, elsewhere)
	}
}

// testRevisionCompaction drops the history of deletions, which takes no revision back. A watch that was opened before
// goes on, and one that is opened at a revision from before the deletion sees it.
func testRevisionCompaction(c *check) {
	c.requireHook(c.Compact != nil, "Compact")
	old := c.put("w/a", "1", "w/b", "1").Revision
	present := c.list("w/").Records
	m := c.mirrorOf("w/", 0)
	deleted := c.delete("w/b").Revision
	m.reach(deleted)
	c.Compact()
	if revision, listed := c.revision("w/"), c.list("w/").Revision; revision < deleted || listed < deleted {
		c.Errorf("after compaction: got revision %d and a listing at %d, want at least %d", revision, listed, deleted)
	}
	late := c.mirrorOf("w/", old, present...)
	late.reach(c.revision("w/"))
	m.reach(c.put("w/c", "1").Revision)
}
