package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Errors of an Engine. Wrap them; compare with errors.Is.
var (
	// ErrNotFound says that the key has no record.
	ErrNotFound = errors.New("no such record")
	// ErrUnknown says that a write was sent and its result was lost: it may have
	// been applied, may yet be applied, or may never be. The caller settles it by
	// a write that compares what the first would have changed (P3.3).
	ErrUnknown = errors.New("the write's result is unknown")
	// ErrTooLarge says that a call exceeds the engine's Limits; nothing was written.
	ErrTooLarge = errors.New("the transaction is over the engine's limits")
	// ErrInvalid says that a call can never succeed as it is, such as two groups
	// that write one key; nothing was written.
	ErrInvalid = errors.New("the transaction is malformed")
	// ErrNoSpace says that the engine refuses writes because its disk or its quota is nearly full. Reads continue, and
	// writes work again after space returns. Nothing was written, unless the error wraps ErrUnknown too. The write that
	// reached the quota was then applied or refused, and a read shows which.
	ErrNoSpace = errors.New("the store is out of space")
	// ErrCompacted says that the engine dropped the history that a snapshot was reading. What was written so far is no
	// snapshot: begin again with an empty file.
	ErrCompacted = errors.New("the store dropped the history that the snapshot was reading: save it again")
	// ErrClosed says that the engine was closed.
	ErrClosed = errors.New("the store is closed")
)

// Record is one key with its value, as the engine holds it.
type Record struct {
	Key   string
	Value []byte // never changed after it was handed out
	// Created and Modified are the engine's revisions of the record's creation and of its last write (P2.1). Modified
	// grows with every write of the key that changes its value. An engine may skip a write of the present value, as
	// Consul does. A restore of the engine's data may lower both.
	Created, Modified uint64
}

// Compare is a precondition on one key.
type Compare struct {
	Key string
	// Modified is the revision that the record must have; 0 demands that there is
	// no such record. With AnyModified the record must exist, at any revision.
	Modified uint64
}

// AnyModified, as Compare.Modified, demands that the record exists, whatever its revision.
const AnyModified = ^uint64(0)

// Op writes or deletes one key. To delete an absent key is no error.
type Op struct {
	Key    string
	Value  []byte // ignored by a deletion
	Delete bool
}

// Group is the unit of atomicity: all its operations are applied if all its
// compares hold, and none of them otherwise.
type Group struct {
	Compares []Compare
	Ops      []Op
}

// Result reports the result of each group of one Commit.
type Result struct {
	// Applied has an element for each group, in the order of the call.
	Applied []bool
	// Revision is the engine's revision at which the call was decided. A watch that has delivered it has delivered
	// every write of the call. It is the Modified of every record whose value the call changed.
	Revision uint64
}

// Limits are what one Commit may carry.
type Limits struct {
	// Operations limits the compares and operations in one call, over all its groups; a group counts as at least one.
	// Bytes limits the bytes of keys and values in one call.
	Operations, Bytes int
}

// Listing is all records under a prefix, ordered by key, as they stood together at Revision. Revision covers every
// write under the prefix that ended before the call. In an engine that counts the changes of each prefix separately,
// as Consul does, it need not cover writes elsewhere.
type Listing struct {
	Records  []Record
	Revision uint64
}

// Engine is a key-value store with revisions, as etcd and Consul are. Every
// method may be called concurrently. Reads are linearizable. A call whose
// context ends returns the context's error if nothing was sent, and an error
// that wraps ErrUnknown where a write may have happened. The revisions that one
// Engine returns for a prefix never go back, unless a restore takes its data back.
type Engine interface {
	// Read returns the record under key, or ErrNotFound.
	Read(ctx context.Context, key string) (Record, error)
	// List returns the records under a prefix at one revision. A prefix ends in "/"
	// or is empty.
	List(ctx context.Context, prefix string) (Listing, error)
	// Revision returns the newest revision of the store or, in an engine that counts the changes of each prefix
	// separately, of the prefix. A watch of the prefix that has delivered it has delivered every write under the prefix
	// that ended before the call, by any client.
	Revision(ctx context.Context, prefix string) (uint64, error)
	// Commit applies independent groups. The compares of all groups are evaluated
	// against the state before the call; a refused group does not stop the others.
	// No two operations of one call may write the same key (ErrInvalid), whether or not
	// their groups hold. On success every applied group is durable. A call
	// without groups writes nothing and returns the engine's present revision.
	Commit(ctx context.Context, groups []Group) (Result, error)
	// Watch opens a stream of the changes under a prefix after the given revision. Revision 0 begins with a resync that
	// carries the whole prefix. The watch lives until its Close, the engine's, or the end of ctx.
	Watch(ctx context.Context, prefix string, after uint64) Watch
	// Snapshot writes all records under a prefix, as they stood together at one revision, in the format of package
	// snapshotfile. It holds every write under the prefix that any client got acknowledged before the call. After an
	// error the written bytes are no snapshot. The error wraps ErrCompacted if the engine dropped the revision before
	// the last record was read: a slow reader of to causes that.
	Snapshot(ctx context.Context, prefix string, to io.Writer) error
	// Limits returns the bounds of a Commit; they do not change.
	Limits() Limits
	// Close ends all watches and releases what the engine holds.
	Close() error
}

// TogetherReader is an Engine that reads several records in one round trip.
type TogetherReader interface {
	// ReadTogether returns a record for each key, in the order of the keys, as they stood at one revision. A record
	// that does not exist has Modified 0. Like Read, the call is linearizable.
	ReadTogether(ctx context.Context, keys ...string) ([]Record, error)
}

// ForeignFollower is an Engine whose watches deliver the writes of other programs late.
type ForeignFollower interface {
	Engine
	// FollowForeign has all watches of the store deliver the records under a prefix soon after another program wrote
	// or deleted them, until ctx ends. isForeign reports whether another program wrote a record.
	FollowForeign(ctx context.Context, prefix string, isForeign func(Record) bool) error
}

// Change is one record that was created, changed or deleted.
type Change struct {
	Record
	Deleted bool // then Value is nil and Modified the revision of the deletion, where the engine knows it
}

// Batch is what a watch delivers in one step.
type Batch struct {
	// Changes holds at most one change a key, ordered by key. In a resync it holds
	// every record under the prefix, and a key that is not in it does not exist.
	Changes []Change
	// Revision is the revision that the changes lead to. It grows from batch to batch; only a resync may go back, after
	// a restore of the engine. A batch without changes that is not a resync is progress: nothing under the prefix
	// changed up to Revision. A watch delivers progress soon after a Commit, List or Revision of its engine returned a
	// revision that the watch has not reached.
	Revision uint64
	// Resync marks a batch that replaces everything delivered before. It follows when the watch fell behind compaction,
	// after a restore, or in an engine that cannot distinguish changes.
	Resync bool
	// WentBack says of a resync that the data went back to an earlier state since the last batch, as after a restore:
	// writes that were acknowledged may be missing (P1.7). An engine sets it only if it has evidence.
	WentBack bool
}

// Watch is a converging stream (P2.2): it delivers the latest value of each key,
// deletions included; intermediate versions may be skipped. One goroutine at a time may
// call Next.
type Watch interface {
	// Next blocks until there is a batch. It returns the context's error, or ErrClosed after the engine was closed. The
	// watch recovers from any other fault by itself, with a resync if it lost changes.
	Next(ctx context.Context) (Batch, error)
	Close()
}

// CheckGroups validates the arguments of Commit without reading any record. It returns ErrInvalid for an empty key or a
// key that two operations write, and ErrTooLarge for a call over the limits. Every engine calls it first.
func CheckGroups(groups []Group, limits Limits) error {
	written := make(map[string]struct{})
	for i, g := range groups {
		for _, c := range g.Compares {
			if c.Key == "" {
				return fmt.Errorf("group %d compares an empty key: %w", i, ErrInvalid)
			}
		}
		for _, op := range g.Ops {
			if op.Key == "" {
				return fmt.Errorf("group %d writes an empty key: %w", i, ErrInvalid)
			}
			if _, twice := written[op.Key]; twice {
				return fmt.Errorf("group %d writes key %q a second time: %w", i, op.Key, ErrInvalid)
			}
			written[op.Key] = struct{}{}
		}
	}
	switch need := SizeOf(groups); {
	case need.Operations > limits.Operations:
		return fmt.Errorf("%d operations, at most %d: %w", need.Operations, limits.Operations, ErrTooLarge)
	case need.Bytes > limits.Bytes:
		return fmt.Errorf("%d bytes, at most %d: %w", need.Bytes, limits.Bytes, ErrTooLarge)
	}
	return nil
}

// CheckTextKeys returns ErrInvalid for a key that is no UTF-8. Engines that send keys as JSON call it.
func CheckTextKeys(groups []Group) error {
	for _, g := range groups {
		for _, c := range g.Compares {
			if !utf8.ValidString(c.Key) {
				return fmt.Errorf("key %q is no UTF-8: %w", c.Key, ErrInvalid)
			}
		}
		for _, op := range g.Ops {
			if !utf8.ValidString(op.Key) {
				return fmt.Errorf("key %q is no UTF-8: %w", op.Key, ErrInvalid)
			}
		}
	}
	return nil
}

// SizeOf returns the smallest limits with which an engine takes the groups in one call of Commit.
func SizeOf(groups []Group) (need Limits) {
	for _, g := range groups {
		need.Operations += len(g.Compares) + len(g.Ops)
		for _, c := range g.Compares {
			need.Bytes += len(c.Key)
		}
		for _, op := range g.Ops {
			need.Bytes += len(op.Key)
			if !op.Delete {
				need.Bytes += len(op.Value)
			}
		}
	}
	need.Operations = max(need.Operations, len(groups))
	return need
}

// Hold reports whether a commit of the size stays within the limits.
func (l Limits) Hold(size Limits) bool {
	return size.Operations <= l.Operations && size.Bytes <= l.Bytes
}

// CheckPrefix returns ErrInvalid for a prefix that neither is empty nor ends in "/".
func CheckPrefix(prefix string) error {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %q does not end in a slash: %w", prefix, ErrInvalid)
	}
	return nil
}
