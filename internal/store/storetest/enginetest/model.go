package enginetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/suite"
)

// compareWithModel compares the engine with the simplest model, a map, over random commits.
func compareWithModel(t suite.T, subject storetest.Subject) {
	test, ok := t.(rapid.TB)
	if !ok {
		t.Fatalf("random commits need a test")
	}
	ctx, round := t.Context(), 0
	unbounded := struct{ rapid.TB }{test} // without Deadline, which a bubble refuses
	rapid.Check(unbounded, func(t *rapid.T) {
		round++
		prefix := fmt.Sprintf("model/%d/", round)
		model := map[string]store.Record{}
		for range rapid.IntRange(1, 8).Draw(t, "commits") {
			groups := drawGroups(t, prefix, model)
			result, err := subject.Engine.Commit(ctx, groups)
			if err != nil {
				t.Fatalf("commit %+v: %v", groups, err)
			}
			applied := advance(model, groups, result.Revision, subject.SkipsEqual)
			if diff := cmp.Diff(applied, result.Applied); diff != "" {
				t.Fatalf("applied by %+v (-want +got):\n%s", groups, diff)
			}
			listing, err := subject.Engine.List(ctx, prefix)
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			var want []store.Record
			for _, key := range slices.Sorted(maps.Keys(model)) {
				want = append(want, model[key])
			}
			if diff := cmp.Diff(want, listing.Records, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("records after %+v (-want +got):\n%s", groups, diff)
			}
		}
	})
}

// drawGroups draws groups over a few keys, with compares that succeed about half of the time.
func drawGroups(t *rapid.T, prefix string, model map[string]store.Record) []store.Group {
	keys := rapid.Permutation([]string{prefix + "a", prefix + "b", prefix + "c", prefix + "d/e", prefix + "d/f"}).Draw(
		t, "keys")
	groups := make([]store.Group, rapid.IntRange(1, 3).Draw(t, "groups"))
	for i := range groups {
		for _, key := range rapid.SliceOfN(rapid.SampledFrom(keys), 0, 2).Draw(t, "compared") {
			modified := rapid.SampledFrom([]uint64{
				0, store.AnyModified, 1, model[key].Modified, model[key].Modified,
				model[key].Modified,
			}).Draw(t, "modified")
			groups[i].Compares = append(groups[i].Compares, store.Compare{Key: key, Modified: modified})
		}
		for range rapid.IntRange(0, min(2, len(keys))).Draw(t, "writes") {
			op := store.Op{Key: keys[0], Value: []byte(rapid.StringN(0, 4, -1).Draw(t, "value"))}
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				op = store.Op{Key: keys[0], Delete: true}
			}
			keys = keys[1:]
			groups[i].Ops = append(groups[i].Ops, op)
		}
	}
	return groups
}

// advance applies groups to the model and returns which of them were applied.
func advance(model map[string]store.Record, groups []store.Group, revision uint64, skipsEqual bool) []bool {
	before := maps.Clone(model)
	applied := make([]bool, len(groups))
	for i, g := range groups {
		applied[i] = true
		for _, compare := range g.Compares {
			record, exists := before[compare.Key]
			if compare.Modified == store.AnyModified {
				applied[i] = applied[i] && exists
			} else {
				applied[i] = applied[i] && record.Modified == compare.Modified
			}
		}
		if !applied[i] {
			continue
		}
		for _, op := range g.Ops {
			record, exists := before[op.Key]
			switch {
			case op.Delete:
				delete(model, op.Key)
			case exists && skipsEqual && bytes.Equal(record.Value, op.Value):
			case exists:
				record.Value, record.Modified = op.Value, revision
				model[op.Key] = record
			default:
				model[op.Key] = store.Record{Key: op.Key, Value: op.Value, Created: revision, Modified: revision}
			}
		}
	}
	return applied
}
