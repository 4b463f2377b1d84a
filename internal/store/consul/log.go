package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store"
)

// head is the newest commit of a writer.
type head struct {
	// First and Last are the numbers of its first and newest entry. Fences counts the writes of the head without an
	// entry, which prevent that an older commit is applied later.
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Fences uint64 `json:"fences,omitempty"`
	// Keys are those of the newest entry if they are few and no foreign ones, so that a watch need not read the entry.
	Keys []string `json:"keys,omitempty"`
	// ID distinguishes this write of the head from all others.
	ID string `json:"id"`
	// index is the index of the head in Consul, 0 if there is none.
	index uint64
}

// heads are the newest commits of all writers.
type heads struct {
	writers map[string]head
	// removed are the last numbers of writers whose heads were removed.
	removed map[string]uint64
	// removedIndex is the index of the record with these.
	removedIndex uint64
	// revision is the revision of the store: the newest index of all of them.
	revision uint64
}

const (
	// removedWriters is the name of the head that remembers the last numbers of writers that are gone.
	removedWriters = "removed"
	// maxRemoved is the number of writers that are remembered.
	maxRemoved = 32
)

// entry is the keys of one commit.
type entry struct {
	Number uint64   `json:"n"`
	Keys   []string `json:"keys,omitempty"`
	// Foreign says that another program wrote the records before, at an index below that of the entry.
	Foreign bool `json:"foreign,omitempty"`
	// Whole says that the keys found no room in the request: all records have to be read.
	Whole bool `json:"whole,omitempty"`
}

// maxHeadKeys is the size of keys that a head may hold, in bytes.
const maxHeadKeys = 512

// keysOfHead returns the keys of an entry if they are few.
func keysOfHead(keys []string) []string {
	size := 0
	for _, key := range keys {
		size += len(key)
	}
	if size > maxHeadKeys {
		return nil
	}
	return keys
}

// decodeEntry returns the entry of a number, and false if the pair holds none or another.
func decodeEntry(p *api.KVPair, number uint64) (found entry, ok bool) {
	err := json.Unmarshal(p.Value, &found)
	return found, err == nil && found.Number == number
}

func (k keyspace) headKey(writer string) string { return k.logKey("head/" + writer) }

func (k keyspace) entryKey(writer string, number uint64) string {
	return k.logKey("entry/" + writer + "/" + strconv.FormatUint(number%maxEntries, 10))
}

// changeLog reads the log of changes, and records together with it.
type changeLog struct{ *connection }

// readHeads returns the present heads by a linearizable read.
func (l changeLog) readHeads(ctx context.Context) (heads, error) {
	results, err := l.readTrees(ctx, l.key("berth/probe"))
	if err != nil {
		return heads{}, err
	}
	pairs := make(api.KVPairs, len(results))
	for i, r := range results {
		pairs[i] = r.KV
	}
	return l.headsOf(pairs)
}

// headsOf returns the heads that the pairs hold.
func (k keyspace) headsOf(pairs api.KVPairs) (heads, error) {
	all := heads{writers: make(map[string]head, len(pairs)), revision: 1}
	for _, p := range pairs {
		writer, ok := strings.CutPrefix(p.Key, k.headKey(""))
		if !ok {
			continue
		}
		all.revision = max(all.revision, p.ModifyIndex)
		if writer == removedWriters {
			all.removedIndex = p.ModifyIndex
			_ = json.Unmarshal(p.Value, &all.removed) // without it watches read all records again
			continue
		}
		h := head{index: p.ModifyIndex}
		if err := json.Unmarshal(p.Value, &h); err != nil {
			return heads{}, fmt.Errorf("%s in consul is not readable: %w: %w", p.Key, store.ErrUnavailable, err)
		}
		all.writers[writer] = h
	}
	return all, nil
}

// waitForHeads returns the heads once one of them changed after an index of Consul, or after about a time. It returns
// the index for the next call.
func (l changeLog) waitForHeads(ctx context.Context, after uint64, most time.Duration) (heads, uint64, error) {
	bounded, cancel := context.WithTimeout(ctx, most+most/16+readTimeout) // Consul adds up to a sixteenth
	defer cancel()
	client, number := l.client()
	q := l.query(bounded)
	q.RequireConsistent, q.WaitIndex, q.WaitTime = false, after, most
	pairs, meta, err := client.KV().List(l.headKey(""), q)
	if err != nil {
		l.failed(number, err)
		if classify(err) == isLimited {
			return heads{}, after, err
		}
		return heads{}, 0, err
	}
	if meta.ResultsFilteredByACLs {
		return heads{}, 0, l.denied(errFiltered)
	}
	present, err := l.headsOf(pairs)
	if meta.LastIndex < after { // Consul was restored
		return present, 0, err
	}
	return present, meta.LastIndex, err
}

// place is the place of an entry in the log.
type place struct {
	writer string
	number uint64
}

// entriesBetween returns the places of the entries between two states of the heads, and the keys of those that the
// heads hold. It returns false if some entries are not known any more, or if Consul was restored.
func entriesBetween(from, to heads) (places []place, keys []string, known bool) {
	for writer, was := range from.writers { // order-free: all of them
		if _, exists := to.writers[writer]; !exists && to.removed[writer] != was.Last {
			return nil, nil, false
		}
	}
	for writer, now := range to.writers { // order-free: sets result
		was, existed := from.writers[writer]
		if existed && was.index == now.index {
			continue
		}
		first := now.First
		if existed {
			first = was.Last + 1
		}
		switch {
		case now.index < was.index, now.Last < was.Last, now.First > first, now.Last >= first+maxEntries,
			existed && now.Last == was.Last && now.Fences == was.Fences:
			return nil, nil, false
		case first == now.Last && len(now.Keys) > 0:
			keys = append(keys, now.Keys...)
			continue
		}
		for n := first; n <= now.Last; n++ {
			places = append(places, place{writer, n})
		}
	}
	return places, keys, len(places) <= maxOperations
}

// wentBack reports whether Consul was restored to an earlier state between two states of the heads. The later one is of
// a linearizable read. Heads that are only gone prove nothing: the log may have been deleted.
func wentBack(from, to heads) bool {
	if to.removedIndex > 0 && to.removedIndex < from.removedIndex {
		return true
	}
	for writer, now := range to.writers { // order-free: any of them
		was, existed := from.writers[writer]
		if existed && now.index < was.index || !existed && now.index <= from.revision {
			return true
		}
	}
	return false
}

// changedKeys returns the keys under a prefix of the commits between two states of the heads. A value says that another
// program wrote the record. It returns false if some of the keys are not known.
func (l changeLog) changedKeys(ctx context.Context, from, to heads, prefix string) (map[string]bool, bool, error) {
	places, changed, known := entriesBetween(from, to)
	foreign := map[string]bool{}
	if !known {
		return nil, false, nil
	}
	if len(places) > 0 {
		ops := make(api.TxnOps, len(places))
		for i, p := range places {
			ops[i] = kvOp(api.KVGetOrEmpty, l.entryKey(p.writer, p.number))
		}
		results, errs, err := l.readTogether(ctx, ops)
		if err != nil || len(errs) > 0 {
			return nil, false, err
		}
		if len(results) != len(places) {
			return nil, false, l.denied(errFiltered)
		}
		for i, r := range results {
			found, ok := decodeEntry(r.KV, places[i].number)
			if !ok || found.Whole {
				return nil, false, nil
			}
			changed = append(changed, found.Keys...)
			if found.Foreign {
				for _, key := range found.Keys {
					foreign[key] = true
				}
			}
		}
	}
	keys := map[string]bool{}
	for _, key := range changed {
		if strings.HasPrefix(key, prefix) {
			keys[key] = foreign[key]
		}
	}
	return keys, true, nil
}

// headsAt returns the heads as they were at a revision. It returns false if the log does not reach back so far.
func (l changeLog) headsAt(ctx context.Context, revision uint64) (heads, bool, error) {
	present, err := l.readHeads(ctx)
	if err != nil {
		return heads{}, false, err
	}
	if revision > present.revision || present.removedIndex > revision {
		return heads{}, false, nil
	}
	then := heads{
		writers: map[string]head{}, removed: present.removed, removedIndex: present.removedIndex, revision: revision,
	}
	for writer, h := range present.writers { // order-free: each by itself
		if h.index > revision {
			at, known, err := l.headAt(ctx, writer, h, revision)
			if err != nil || !known {
				return heads{}, false, err
			}
			h = at
		}
		if h.index > 0 {
			then.writers[writer] = h
		}
	}
	return then, true, nil
}

// headAt returns the head of a writer at a revision before its present one, without an index if it did not exist. An
// entry is as old as its commit.
func (l changeLog) headAt(ctx context.Context, writer string, present head, revision uint64) (head, bool, error) {
	first := max(present.First, 1)
	if present.Last >= maxEntries {
		first = max(first, present.Last-maxEntries+1)
	}
	var ops api.TxnOps
	for n := first; n <= present.Last; n++ {
		ops = append(ops, kvOp(api.KVGetOrEmpty, l.entryKey(writer, n)))
	}
	if len(ops) == 0 {
		return head{}, true, nil
	}
	results, errs, err := l.readTogether(ctx, ops)
	if err != nil || len(errs) > 0 {
		return head{}, false, err
	}
	if len(results) != len(ops) {
		return head{}, false, l.denied(errFiltered)
	}
	at := head{}
	for i, r := range results {
		found, ok := decodeEntry(r.KV, first+uint64(i))
		if !ok {
			return head{}, false, nil
		}
		if r.KV.ModifyIndex <= revision {
			at = head{First: present.First, Last: found.Number, index: r.KV.ModifyIndex}
		}
	}
	return at, at.index > 0 || first == max(present.First, 1), nil
}

// removeWriters removes the heads and entries of writers, and remembers their last numbers. present are the heads of
// which they are some. Nothing happens if one of them wrote meanwhile, or if another engine removed writers.
func (l changeLog) removeWriters(ctx context.Context, present heads, gone []string) error {
	removed := maps.Clone(present.removed)
	if removed == nil || len(removed)+len(gone) > maxRemoved {
		removed = map[string]uint64{}
	}
	var ops api.TxnOps
	for _, writer := range gone {
		h := present.writers[writer]
		removed[writer] = h.Last
		check := kvOp(api.KVCheckIndex, l.headKey(writer))
		check.KV.Index = h.index
		ops = append(ops, check, kvOp(api.KVDelete, l.headKey(writer)),
			kvOp(api.KVDeleteTree, l.logKey("entry/"+writer+"/")))
	}
	value, err := json.Marshal(removed)
	if err != nil {
		return err
	}
	write := kvOp(api.KVCAS, l.headKey(removedWriters))
	write.KV.Value, write.KV.Index = value, present.removedIndex
	bounded, cancel := l.bound(ctx, writeTimeout)
	defer cancel()
	client, _ := l.client()
	_, _, _, err = client.Txn().Txn(append(ops, write), l.query(bounded))
	return err
}
