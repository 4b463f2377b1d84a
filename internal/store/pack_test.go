package store

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Every unit is in one call, in its order within a round. A call keeps the limits unless it holds a single unit.
func TestPackKeepsTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Operations: rapid.IntRange(3, 130).Draw(t, "operations"),
			Bytes:      rapid.IntRange(600, 9000).Draw(t, "bytes"),
		}
		units := make([]Unit, rapid.IntRange(0, 60).Draw(t, "units"))
		members := make([]int, len(units))
		for i := range units {
			members[i] = i
			for j := range rapid.IntRange(0, 9).Draw(t, "ops") {
				units[i].Ops = append(units[i].Ops, Op{
					Key: fmt.Sprint(i, j), Value: make([]byte, rapid.IntRange(0, 900).Draw(t, "bytes")),
				})
			}
		}
		next := 0
		for _, call := range packCalls(chunkUnits(units, members, limits), units, limits) {
			ops, size, n := 0, 0, 0
			for _, group := range call {
				ops, size = ops+groupOverheadOps, size+groupOverheadBytes
				for _, u := range group {
					if u != next {
						t.Fatalf("unit %d comes where %d was due", u, next)
					}
					o, s := measureUnit(&units[u])
					ops, size, next, n = ops+o, size+s, next+1, n+1
				}
			}
			if n > 1 && (ops > limits.Operations || size > limits.Bytes) {
				t.Fatalf("a call of %d units has %d operations and %d bytes, limits %+v", n, ops, size, limits)
			}
		}
		if next != len(units) {
			t.Fatalf("%d of %d units are sent", next, len(units))
		}
	})
}

// The units of a round share no key, and units that share a key keep their order.
func TestRoundsShareNoKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := make([]Unit, rapid.IntRange(0, 40).Draw(t, "units"))
		for i := range units {
			for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 0, 4, rapid.ID[int]).Draw(t, "keys") {
				units[i].Delete(fmt.Sprint(k))
			}
		}
		written, seen := map[string]int{}, 0
		for _, round := range splitRounds(units) {
			inRound := map[string]bool{}
			for _, u := range round {
				seen++
				for _, op := range units[u].Ops {
					if inRound[op.Key] {
						t.Fatalf("key %s is written twice in a round", op.Key)
					}
					if last, ok := written[op.Key]; ok && last > u {
						t.Fatalf("unit %d writes %s after unit %d", u, op.Key, last)
					}
					inRound[op.Key], written[op.Key] = true, u
				}
			}
		}
		if seen != len(units) {
			t.Fatalf("%d of %d units are in a round", seen, len(units))
		}
	})
}

// After the store's revisions went back, an equal revision does not prove an equal record.
func TestResyncAfterTheStoreWentBack(t *testing.T) {
	s := newState(func(key string, err error) { t.Errorf("%s: %v", key, err) })
	record := func(value string, revision uint64) Batch {
		return Batch{Resync: true, Revision: revision, Changes: []Change{{Record: Record{
			Key: "b/task/d", Value: []byte(value), Created: 5, Modified: 5,
		}}}}
	}
	s.apply(record(`{"v":1,"name":"d","version":1}`, 9), "b/")
	s.apply(record(`{"v":1,"name":"d","version":2}`, 7), "b/")
	if ref, _, _ := s.NewestDefinition("d"); ref.Version != 2 {
		t.Errorf("version: got %d, want 2", ref.Version)
	}
}
