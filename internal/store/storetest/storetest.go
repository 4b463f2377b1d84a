// Package storetest is the conformance suite for the contract of store.Engine: cases that run as tests and in programs.
// Every engine, first of all the model, passes the same suite. The tests of an engine call enginetest.Test, which adds
// what draws random cases.
package storetest

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/suite"
)

// Subject is an engine under test, empty and open, with hooks for the suite. A case that needs a hook fails without it.
type Subject struct {
	Engine store.Engine
	// Restart ends the engine and opens it again on the same data.
	Restart func() store.Engine
	// Compact drops the engine's history of changes up to now.
	Compact func()
	// Other opens another client of the same data, for the life of the test.
	Other func() store.Engine
	// Restore returns an engine with the data of a snapshot. It may be the same engine, and replaces Engine.
	Restore func(snapshot io.Reader) (store.Engine, error)
	// Fill makes the disk full, or frees it.
	Fill func(full bool)
	// ReachQuota has the next write reach the engine's quota, which Fill ends.
	ReachQuota func()
	// Whole says that every batch of a watch is a resync, as with Consul.
	Whole bool
	// SkipsEqual says that a write of the present value changes nothing, as with Consul: the record keeps its revision.
	// The call may have a new revision.
	SkipsEqual bool
	// TextKeys says that keys must be UTF-8, as with Consul.
	TextKeys bool
	// PrefixRevisions says that the revision of a prefix counts only changes under it, as with Consul.
	PrefixRevisions bool
}

// Cases returns the suite, in the order in which it is run.
func Cases() []suite.Case[Subject] {
	named := []struct {
		name string
		run  func(*check)
	}{
		{"commit", testCommit},
		{"commit/groups", testGroups},
		{"commit/equal", testEqual},
		{"commit/malformed", testMalformed},
		{"commit/limits", testLimits},
		{"commit/space", testSpace},
		{"commit/quota", testQuota},
		{"commit/contended", testContended},
		{"commit/context", testContext},
		{"read/together", testReadTogether},
		{"list", testList},
		{"list/many", testListMany},
		{"list/one revision", testListTogether},
		{"revision", testRevision},
		{"revision/others", testRevisionOfOthers},
		{"revision/compaction", testRevisionCompaction},
		{"watch/resync first", testWatchWhole},
		{"watch/from a revision", testWatchAfter},
		{"watch/changes", testWatchChanges},
		{"watch/slow reader", testWatchSlow},
		{"watch/progress", testWatchProgress},
		{"watch/compaction", testWatchCompaction},
		{"watch/converges", testWatchConverges},
		{"watch/ends", testWatchEnds},
		{"campaign", testCampaign},
		{"restart", testRestart},
		{"snapshot", testSnapshot},
		{"snapshot/file", testSnapshotFile},
		{"snapshot/together", testSnapshotTogether},
		{"snapshot/compaction", testSnapshotCompaction},
		{"snapshot/back", testSnapshotBack},
		{"snapshot/future", testSnapshotFuture},
		{"snapshot/damaged", testSnapshotDamaged},
		{"server", testServer},
		{"close", testClose},
	}
	cases := make([]suite.Case[Subject], len(named))
	for i, c := range named {
		cases[i] = suite.Case[Subject]{Name: c.name, Run: func(t suite.T, subject Subject) {
			c.run(&check{T: t, Subject: subject})
		}}
	}
	return cases
}

// check is a case's access to its subject, with helpers that fail the case on an error.
type check struct {
	suite.T
	Subject
}

// requireHook fails the case if the subject lacks a hook.
func (c *check) requireHook(has bool, hook string) {
	c.Helper()
	if !has {
		c.Fatalf("the engine under test has no hook %s", hook)
	}
}

// attempts limits how often a call is made while the engine is unavailable, as during an election of the fleet's
// members.
const attempts = 5

// commit commits groups. It retries if the engine says that nothing was written, or if writing twice is harmless. On a
// slow machine a leader may lose its leadership, which is no fault of the engine.
func (c *check) commit(groups ...store.Group) store.Result {
	c.Helper()
	harmless := !slices.ContainsFunc(groups, func(g store.Group) bool { return len(g.Compares) > 0 })
	for n := 1; ; n++ {
		result, err := c.Engine.Commit(c.Context(), groups)
		switch {
		case err == nil:
			return result
		case n < attempts && (errors.Is(err, store.ErrUnavailable) || harmless && errors.Is(err, store.ErrUnknown)):
			c.Logf("commit, attempt %d of %d: %v", n, attempts, err)
		default:
			c.Fatalf("commit: %v", err)
		}
	}
}

// put writes pairs of key and value in one group.
func (c *check) put(pairs ...string) store.Result {
	c.Helper()
	var g store.Group
	for i := 0; i < len(pairs); i += 2 {
		g.Ops = append(g.Ops, put(pairs[i], pairs[i+1]))
	}
	return c.commit(g)
}

func (c *check) delete(keys ...string) store.Result {
	c.Helper()
	var g store.Group
	for _, key := range keys {
		g.Ops = append(g.Ops, remove(key))
	}
	return c.commit(g)
}

func (c *check) read(key string) store.Record {
	c.Helper()
	record, err := c.Engine.Read(c.Context(), key)
	if err != nil {
		c.Fatalf("read %s: %v", key, err)
	}
	return record
}

func (c *check) absent(key string) {
	c.Helper()
	if record, err := c.Engine.Read(c.Context(), key); !errors.Is(err, store.ErrNotFound) {
		c.Fatalf("read %s: got %+v and error %v, want ErrNotFound", key, record, err)
	}
}

func (c *check) list(prefix string) store.Listing {
	c.Helper()
	for n := 1; ; n++ {
		listing, err := c.Engine.List(c.Context(), prefix)
		switch {
		case err == nil:
			return listing
		case n < attempts && errors.Is(err, store.ErrUnavailable):
			c.Logf("list %q, attempt %d of %d: %v", prefix, n, attempts, err)
		default:
			c.Fatalf("list %q: %v", prefix, err)
		}
	}
}

// wantList compares a listing with pairs "key=value".
func (c *check) wantList(prefix string, want ...string) {
	c.Helper()
	if diff := cmp.Diff(want, formatRecords(c.list(prefix).Records)); diff != "" {
		c.Fatalf("list %q (-want +got):\n%s", prefix, diff)
	}
}

func (c *check) wantApplied(got store.Result, want ...bool) {
	c.Helper()
	if !slices.Equal(got.Applied, want) {
		c.Fatalf("applied: got %v, want %v", got.Applied, want)
	}
}

func (c *check) wantError(err, want error) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Fatalf("got error %v, want %v", err, want)
	}
}

// restart ends the engine and opens it again.
func (c *check) restart() {
	c.Helper()
	c.requireHook(c.Restart != nil, "Restart")
	c.Engine = c.Restart()
}

// lastKey returns a key under a prefix that comes after all others there: any byte, if the engine takes it.
func (c *check) lastKey(prefix string) string {
	if c.TextKeys {
		return prefix + "\U0010ffff"
	}
	return prefix + "\xff"
}

func put(key, value string) store.Op { return store.Op{Key: key, Value: []byte(value)} }
func remove(key string) store.Op     { return store.Op{Key: key, Delete: true} }

func formatRecords(records []store.Record) []string {
	var pairs []string
	for _, r := range records {
		pairs = append(pairs, r.Key+"="+string(r.Value))
	}
	return pairs
}

// isStrictlyRising reports whether keys are in order without duplicates.
func isStrictlyRising(keys []string) bool {
	return slices.IsSortedFunc(keys, func(a, b string) int {
		if a == b {
			return 1
		}
		return strings.Compare(a, b)
	})
}
