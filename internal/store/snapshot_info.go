package store

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// SnapshotInfo describes the content of a snapshot.
type SnapshotInfo struct {
	// Revision is that of the engine that the snapshot was saved from. Keys is the number of records, and Nouns that
	// number by the first segment of their keys.
	Revision uint64         `json:"revision"`
	Keys     int            `json:"keys"`
	Nouns    map[string]int `json:"nouns"`
	// Prefix is the prefix of all keys. Saved is the time of the saving server, and Build its version.
	Prefix string    `json:"prefix"`
	Saved  time.Time `json:"saved"`
	Build  string    `json:"build"`
	// Size is the size of the snapshot in bytes. Hash is the SHA-256 of its lines before the last, in hex; it equals
	// the hash that the last line states.
	Size int64  `json:"size_bytes"`
	Hash string `json:"hash"`
	// Taken is the time of the newest record that carries one: the snapshot is not older. It is zero where no record
	// carries a time.
	Taken time.Time `json:"taken,omitzero"`
	// Leaders are the leader records, by domain, with the incarnation of the store.
	Leaders map[string]cluster.Leader `json:"leaders,omitempty"`
	// Masters are the ids of the master keys that the secrets in it need, ordered.
	Masters []string `json:"masters,omitempty"`
}

// Add adds a record of the snapshot to Keys, Nouns, Taken, Leaders and Masters. The record's key has the default
// prefix. Add leaves out the content of a record that it cannot read.
func (i *SnapshotInfo) Add(r Record) {
	if i.Nouns == nil {
		i.Nouns, i.Leaders = map[string]int{}, map[string]cluster.Leader{}
	}
	key, _ := strings.CutPrefix(r.Key, DefaultPrefix)
	noun, rest, _ := strings.Cut(key, "/")
	i.Keys++
	i.Nouns[noun]++
	switch noun {
	case nounLeader:
		if leader, err := Decode[cluster.Leader](r.Value); err == nil {
			i.Leaders[rest] = *leader
			i.noteTime(leader.Since)
		}
	case nounSecretKey:
		if k, err := Decode[cluster.SecretKey](r.Value); err == nil && !slices.Contains(i.Masters, k.Master) {
			i.Masters = append(i.Masters, k.Master)
			slices.Sort(i.Masters)
		}
	case nounEvent, nounPlan:
		var dated struct {
			At time.Time `json:"at"`
		}
		if json.Unmarshal(r.Value, &dated) == nil {
			i.noteTime(dated.At)
		}
	}
}

// noteTime sets Taken to the time of a record, if that is newer.
func (i *SnapshotInfo) noteTime(at time.Time) {
	if at.After(i.Taken) {
		i.Taken = at
	}
}
