package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/suite"
)

// testCommit creates, changes and deletes one record.
func testCommit(c *check) {
	// 1. A record is created only once.
	create := store.Group{Compares: []store.Compare{{Key: "a/k"}}, Ops: []store.Op{put("a/k", "1")}}
	first := c.commit(create)
	c.wantApplied(first, true)
	c.wantApplied(c.commit(create), false)
	made := c.read("a/k")
	if made.Created != first.Revision || made.Modified != first.Revision || string(made.Value) != "1" ||
		made.Key != "a/k" {
		c.Fatalf("created: got %+v, want value 1 at revision %d", made, first.Revision)
	}
	// 2. A record is changed from its present revision, and not from an old one.
	change := store.Group{
		Compares: []store.Compare{{Key: "a/k", Modified: made.Modified}},
		Ops:      []store.Op{put("a/k", "2")},
	}
	second := c.commit(change)
	c.wantApplied(second, true)
	if second.Revision <= first.Revision {
		c.Fatalf("revision %d came after %d", second.Revision, first.Revision)
	}
	refused := c.commit(change)
	c.wantApplied(refused, false)
	if refused.Revision < second.Revision {
		c.Fatalf("a refused commit was decided at %d, before %d", refused.Revision, second.Revision)
	}
	changed := c.read("a/k")
	if changed.Created != made.Created || changed.Modified != second.Revision || string(changed.Value) != "2" {
		c.Fatalf("changed: got %+v, want value 2, created %d, modified %d", changed, made.Created, second.Revision)
	}
	// 3. AnyModified holds for an existing record, and not for an absent one.
	c.wantApplied(c.commit(
		store.Group{
			Compares: []store.Compare{{Key: "a/k", Modified: store.AnyModified}},
			Ops:      []store.Op{put("a/k", "")},
		},
		store.Group{
			Compares: []store.Compare{{Key: "a/other", Modified: store.AnyModified}},
			Ops:      []store.Op{put("a/other", "")},
		},
		store.Group{Compares: []store.Compare{{Key: "a/other", Modified: 1}}, Ops: []store.Op{put("a/third", "")}},
	), true, false, false)
	if got := c.read("a/k"); len(got.Value) != 0 {
		c.Fatalf("an empty value: got %q", got.Value)
	}
	// 4. A record is deleted. The deletion of an absent record is no error.
	c.wantApplied(c.delete("a/k", "a/never"), true)
	c.absent("a/k")
	c.wantApplied(c.delete("a/k"), true)
	// 5. A record that is created again has a new revision of creation.
	again := c.commit(create)
	c.wantApplied(again, true)
	if got := c.read("a/k"); got.Created != again.Revision {
		c.Fatalf("created again: got %+v, want revision %d", got, again.Revision)
	}
	// 6. Values are arbitrary bytes, and the engine copies them during the call.
	value := []byte{0, 0xff, '\n', 0xc3}
	kept := bytes.Clone(value)
	c.commit(store.Group{Ops: []store.Op{{Key: "a/bytes", Value: value}}})
	value[0] = 'x'
	if got := c.read("a/bytes"); !bytes.Equal(got.Value, kept) {
		c.Fatalf("bytes: got %q, want %q", got.Value, kept)
	}
	// 7. A call without groups returns the revision.
	if got, want := c.commit().Revision, c.list("").Revision; got != want || len(c.commit().Applied) != 0 {
		c.Fatalf("an empty commit: got revision %d, want %d", got, want)
	}
}

// testGroups shows that groups are atomic, and independent of each other.
func testGroups(c *check) {
	c.put("g/a", "1", "g/b", "1")
	a := c.read("g/a")
	// 1. All compares are evaluated before the first write; refused groups stop none.
	result := c.commit(
		store.Group{Compares: []store.Compare{{Key: "g/new"}}, Ops: []store.Op{put("g/new", "1"), remove("g/b")}},
		store.Group{Compares: []store.Compare{{Key: "g/new"}}, Ops: []store.Op{put("g/sees-no-new", "1")}},
		store.Group{
			Compares: []store.Compare{{Key: "g/b", Modified: a.Modified}},
			Ops:      []store.Op{put("g/sees-b", "1")},
		},
		store.Group{
			Compares: []store.Compare{{Key: "g/a", Modified: a.Modified}, {Key: "g/b"}},
			Ops:      []store.Op{put("g/a", "2"), put("g/half", "1")},
		},
		store.Group{Ops: []store.Op{put("g/free", "1")}},
		store.Group{Compares: []store.Compare{{Key: "g/a", Modified: a.Modified}}},
		store.Group{Compares: []store.Compare{{Key: "g/a"}}},
		store.Group{},
	)
	c.wantApplied(result, true, true, true, false, true, true, false, true)
	c.wantList("g/", "g/a=1", "g/free=1", "g/new=1", "g/sees-b=1", "g/sees-no-new=1")
	// 2. All writes of one call have one revision.
	for _, r := range c.list("g/").Records {
		if r.Key != "g/a" && r.Modified != result.Revision {
			c.Errorf("%s: revision %d, want %d", r.Key, r.Modified, result.Revision)
		}
	}
	// 3. Calls whose groups are all refused, or only compare, write nothing.
	before := c.list("g/")
	c.wantApplied(c.commit(store.Group{
		Compares: []store.Compare{{Key: "g/a"}},
		Ops:      []store.Op{put("g/a", "3"), put("g/z", "3")},
	}), false)
	c.wantApplied(c.commit(store.Group{Compares: []store.Compare{{Key: "g/a", Modified: a.Modified}}}), true)
	if diff := cmp.Diff(before.Records, c.list("g/").Records); diff != "" {
		c.Fatalf("a refused commit changed something:\n%s", diff)
	}
}

// testEqual writes the value that a record has already, alone and beside a change. The call is applied either way. The
// engine gives the record a new revision and wakes watches, or keeps the revision and delivers no change.
func testEqual(c *check) {
	first := c.put("w/a", "1", "w/b", "1").Revision
	want := func(equal uint64) uint64 {
		if c.SkipsEqual {
			return first
		}
		return equal
	}
	m := c.mirrorOf("w/", 0)
	m.next()
	equal := c.commit(store.Group{
		Compares: []store.Compare{{Key: "w/a", Modified: first}},
		Ops:      []store.Op{put("w/a", "1")},
	})
	c.wantApplied(equal, true)
	if got := c.read("w/a"); got.Modified != want(equal.Revision) || got.Created != first {
		c.Errorf("after an equal write at %d: got %+v, want revision %d", equal.Revision, got, want(equal.Revision))
	}
	if equal.Revision < first || equal.Revision == first && !c.SkipsEqual {
		c.Errorf("an equal write after revision %d was decided at %d; the engine skips it: %v", first, equal.Revision,
			c.SkipsEqual)
	}
	if c.SkipsEqual { // a watch makes progress at most
		short, done := context.WithTimeout(c.Context(), 50*time.Millisecond)
		defer done()
		switch batch, err := m.watch.Next(short); {
		case err != nil:
			c.wantError(err, context.DeadlineExceeded)
		case len(batch.Changes) > 0 || batch.Resync || batch.Revision > equal.Revision:
			c.Errorf("after an equal write at %d a watch delivered %+v, want nothing", equal.Revision, batch)
		}
	}
	both := c.put("w/a", "1", "w/b", "2").Revision
	if a, b := c.read("w/a").Modified, c.read("w/b").Modified; a != want(both) || b != both {
		c.Errorf("an equal write and a change at %d: got revisions %d and %d, want %d and %d", both, a, b, want(both),
			both)
	}
	m.reach(both)
}

// testMalformed makes calls that can never succeed.
func testMalformed(c *check) {
	c.put("m/exists", "1")
	never := []store.Compare{{Key: "m/exists"}}
	for _, test := range []struct {
		name   string
		groups []store.Group
	}{
		{
			"two groups write a key",
			[]store.Group{{Ops: []store.Op{put("m/k", "1")}}, {Ops: []store.Op{put("m/k", "2")}}},
		},
		{
			"two refused groups write a key",
			[]store.Group{
				{Compares: never, Ops: []store.Op{put("m/k", "1")}},
				{Compares: never, Ops: []store.Op{put("m/k", "2")}},
			},
		},
		{
			"one group writes and another deletes",
			[]store.Group{{Ops: []store.Op{put("m/k", "1")}}, {Ops: []store.Op{remove("m/k")}}},
		},
		{
			"two groups delete a key",
			[]store.Group{{Ops: []store.Op{remove("m/exists")}}, {Ops: []store.Op{remove("m/exists")}}},
		},
		{"a group writes a key twice", []store.Group{{Ops: []store.Op{put("m/k", "1"), put("m/k", "1")}}}},
		{"an empty key is written", []store.Group{{Ops: []store.Op{put("m/other", "1"), put("", "1")}}}},
		{"an empty key is deleted", []store.Group{{Ops: []store.Op{put("m/other", "1"), remove("")}}}},
		{
			"an empty key is compared",
			[]store.Group{{Compares: []store.Compare{{}}, Ops: []store.Op{put("m/other", "1")}}},
		},
	} {
		groups := append([]store.Group{{Ops: []store.Op{put("m/bystander", "1")}}}, test.groups...)
		if _, err := c.Engine.Commit(c.Context(), groups); !errors.Is(err, store.ErrInvalid) {
			c.Errorf("%s: got error %v, want ErrInvalid", test.name, err)
		}
	}
	if c.TextKeys {
		for _, g := range []store.Group{
			{Ops: []store.Op{put("m/\xff", "1")}}, {Compares: []store.Compare{{Key: "m/\xff"}}},
		} {
			if _, err := c.Engine.Commit(c.Context(), []store.Group{g}); !errors.Is(err, store.ErrInvalid) {
				c.Errorf("a key that is no UTF-8: got error %v, want ErrInvalid", err)
			}
		}
	}
	c.wantList("m/", "m/exists=1")
	for _, prefix := range []string{"m", "m/s"} {
		_, err := c.Engine.List(c.Context(), prefix)
		c.wantError(err, store.ErrInvalid)
		w := c.Engine.Watch(c.Context(), prefix, 0)
		_, err = w.Next(suite.Context(c, 5*time.Second))
		c.wantError(err, store.ErrInvalid)
		w.Close()
	}
}

// testLimits makes calls at the limits and one above them.
func testLimits(c *check) {
	limits := c.Engine.Limits()
	key := func(i int) string { return fmt.Sprintf("l/%06d", i) }
	var many store.Group
	for i := range limits.Operations - 1 {
		many.Ops = append(many.Ops, put(key(i), "v"))
	}
	c.wantApplied(c.commit(store.Group{Compares: []store.Compare{{Key: key(0)}}, Ops: many.Ops}), true)
	if got := len(c.list("l/").Records); got != limits.Operations-1 {
		c.Fatalf("%d records, want %d", got, limits.Operations-1)
	}
	var singles []store.Group
	for i := range limits.Operations {
		singles = append(singles, store.Group{Ops: []store.Op{remove(key(i))}})
	}
	c.wantApplied(c.commit(singles...), slicesRepeat(true, limits.Operations)...)
	c.wantList("l/")

	large := strings.Repeat("x", limits.Bytes-len("l/large"))
	c.put("l/large", large)
	if got := c.read("l/large"); string(got.Value) != large {
		c.Fatalf("a value of %d bytes came back with %d", len(large), len(got.Value))
	}
	c.delete("l/large")

	for _, test := range []struct {
		name   string
		groups []store.Group
	}{
		{
			"an operation too many",
			append(singles[:limits.Operations:limits.Operations], store.Group{Ops: []store.Op{put("l/x", "")}}),
		},
		{"a compare too many", []store.Group{{Compares: []store.Compare{{Key: "l/x"}, {Key: "l/y"}}, Ops: many.Ops}}},
		{"a group too many", make([]store.Group, limits.Operations+1)},
		{"a byte too many", []store.Group{{Ops: []store.Op{put("l/large", large+"x")}}}},
		{
			"a byte too many, in the key of a compare",
			[]store.Group{{Compares: []store.Compare{{Key: "l"}}, Ops: []store.Op{put("l/large", large)}}},
		},
	} {
		if _, err := c.Engine.Commit(c.Context(), test.groups); !errors.Is(err, store.ErrTooLarge) {
			c.Errorf("%s: got error %v, want ErrTooLarge", test.name, err)
		}
	}
	c.wantList("l/")
}

func slicesRepeat(value bool, n int) []bool {
	values := make([]bool, n)
	for i := range values {
		values[i] = value
	}
	return values
}

// testSpace fills the disk and frees it.
func testSpace(c *check) {
	c.requireHook(c.Fill != nil, "Fill")
	c.put("s/a", "1")
	c.Fill(true)
	for _, op := range []store.Op{put("s/b", "1"), remove("s/a")} {
		_, err := c.Engine.Commit(c.Context(), []store.Group{{Ops: []store.Op{op}}})
		c.wantError(err, store.ErrNoSpace)
	}
	c.wantList("s/", "s/a=1")
	c.Fill(false)
	c.put("s/b", "1")
	c.wantList("s/", "s/a=1", "s/b=1")
}

// testQuota reaches the engine's quota. The result of the write that reaches it is unknown, and a read shows it. Later
// writes are refused, and their results are known.
func testQuota(c *check) {
	c.requireHook(c.ReachQuota != nil, "ReachQuota")
	c.ReachQuota()
	_, err := c.Engine.Commit(c.Context(), []store.Group{{Ops: []store.Op{put("q/a", "1")}}})
	c.wantError(err, store.ErrNoSpace)
	c.wantError(err, store.ErrUnknown)
	c.wantList("q/", "q/a=1")
	_, err = c.Engine.Commit(c.Context(), []store.Group{{Ops: []store.Op{put("q/b", "1")}}})
	c.wantError(err, store.ErrNoSpace)
	if errors.Is(err, store.ErrUnknown) {
		c.Errorf("a write after the quota was reached: got %v, want no doubt", err)
	}
	c.wantList("q/", "q/a=1")
	c.Fill(false)
	c.put("q/b", "1")
}

// testContended has several clients increment one record together with a record of each client. No step may be lost,
// and the two records of a step always change together.
func testContended(c *check) {
	const clients, steps = 8, 20
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			own := fmt.Sprintf("n/own/%d", client)
			for done := 0; done < steps; {
				total, at, err := number(c.Context(), c.Engine, "n/total")
				if err != nil {
					c.Errorf("client %d: %v", client, err)
					return
				}
				result, err := c.Engine.Commit(c.Context(), []store.Group{{
					Compares: []store.Compare{{Key: "n/total", Modified: at}},
					Ops:      []store.Op{put("n/total", strconv.Itoa(total+1)), put(own, strconv.Itoa(done+1))},
				}})
				if err != nil {
					c.Errorf("client %d: %v", client, err)
					return
				}
				if result.Applied[0] {
					done++
				}
			}
		})
	}
	running.Wait()
	want := []string{}
	for client := range clients {
		want = append(want, fmt.Sprintf("n/own/%d=%d", client, steps))
	}
	c.wantList("n/", append(want, fmt.Sprintf("n/total=%d", clients*steps))...)
}

// number reads a record that holds a number. An absent record holds 0, at revision 0.
func number(ctx context.Context, engine store.Engine, key string) (value int, modified uint64, err error) {
	record, err := engine.Read(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	value, err = strconv.Atoi(string(record.Value))
	return value, record.Modified, err
}

// testContext ends calls before and while they run. A call that was not sent returns the context's error and changes
// nothing; a call that may have been applied returns ErrUnknown.
func testContext(c *check) {
	ended, cancel := context.WithCancel(c.Context())
	cancel()
	_, err := c.Engine.Commit(ended, []store.Group{{Ops: []store.Op{put("x/ended", "1")}}})
	c.wantError(err, context.Canceled)
	if errors.Is(err, store.ErrUnknown) {
		c.Errorf("a commit that was never sent: got %v, want no ErrUnknown", err)
	}
	_, err = c.Engine.Read(ended, "x/ended")
	c.wantError(err, context.Canceled)
	_, err = c.Engine.List(ended, "x/")
	c.wantError(err, context.Canceled)
	c.wantList("x/")

	fates := map[string]string{}
	for i := range 100 {
		short, cancel := context.WithTimeout(c.Context(), time.Duration(i)*10*time.Microsecond)
		key := fmt.Sprintf("x/%d", i)
		_, err := c.Engine.Commit(short, []store.Group{{Ops: []store.Op{put(key, "1")}}})
		cancel()
		switch {
		case err == nil:
			fates[key] = "written"
		case errors.Is(err, store.ErrUnknown):
			fates[key] = "unknown"
		case errors.Is(err, context.DeadlineExceeded):
			fates[key] = "not written"
		default:
			c.Fatalf("%s: got error %v, want none, ErrUnknown, or the context's", key, err)
		}
	}
	exists := map[string]bool{}
	for _, r := range c.list("x/").Records {
		exists[r.Key] = true
	}
	for key, fate := range fates {
		if fate == "written" && !exists[key] || fate == "not written" && exists[key] {
			c.Errorf("%s was reported as %s; it exists: %v", key, fate, exists[key])
		}
	}
}
