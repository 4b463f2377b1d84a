// Package restore writes a snapshot into a store that runs elsewhere, and marks a store that was made from a snapshot.
//
// A store elsewhere cannot be replaced in one step. Into therefore writes a marker before it changes anything, and
// deletes the marker at its end. A store with the marker is incomplete: servers refuse it (CheckComplete), and so does
// a restore of another snapshot. A restore of the same snapshot starts again and completes it.
//
// The records get new revisions, above all that the store has used before. No record holds the revision of another one.
package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

// Errors of a restore. The store is unchanged.
var (
	// ErrNotEmpty says that the store holds records, and that they were not to be replaced.
	ErrNotEmpty = errors.New("the store already holds records")
	// ErrInUse says that a leader works on the store.
	ErrInUse = errors.New("a server works on the store")
	// ErrIncomplete says that a restore of the store began and did not end.
	ErrIncomplete = errors.New("a restore of this store was interrupted")
)

// leaderWait is how long a restore watches for a leader's beat.
const leaderWait = 8 * election.BeatEvery

// Marker is the record of a restore that has begun and not ended.
type Marker struct {
	// Hash and Revision are those of the snapshot, and Name is that of its file.
	Hash     string    `json:"hash"`
	Revision uint64    `json:"revision"`
	Name     string    `json:"name"`
	Began    time.Time `json:"began"`
	// ID tells restores of one file apart.
	ID string `json:"id"`
	// Fence counts the writes of the marker. Each write ends the earlier commits whose result is unknown.
	Fence int `json:"fence"`
}

// MarkerKey returns the key of the marker. Like beats, it is next to the prefix and not under it.
func MarkerKey(p store.Prefix) string { return strings.TrimSuffix(string(p), "/") + "-restore/marker" }

// CheckComplete returns an error that wraps ErrIncomplete if a restore of the store began and did not end. Servers call
// it before they use a store that runs elsewhere.
func CheckComplete(ctx context.Context, engine store.Engine, prefix store.Prefix) error {
	marker, record, err := readMarker(ctx, engine, prefix)
	if err != nil || record.Modified == 0 {
		return err
	}
	return fmt.Errorf("%w: it began at %s with the snapshot %s", ErrIncomplete, marker.Began.UTC().Format(time.RFC3339),
		marker.Name)
}

// readMarker returns the marker with its record, which has Modified 0 if there is none.
func readMarker(ctx context.Context, engine store.Engine, prefix store.Prefix) (m Marker, r store.Record, err error) {
	r, err = engine.Read(ctx, MarkerKey(prefix))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return m, store.Record{}, nil
	case err != nil:
		return m, r, fmt.Errorf("read the marker of a restore: %w", err)
	}
	if err := json.Unmarshal(r.Value, &m); err != nil {
		m = Marker{Name: "of another build"} // unreadable, so it is not the marker of any snapshot
	}
	return m, r, nil
}

// Config configures Into.
type Config struct {
	// Prefix is that of the store's keys. The snapshot must have the same.
	Prefix store.Prefix
	// Name names the snapshot in messages. Open opens it; Into reads it twice.
	Name string
	Open func() (io.ReadCloser, error)
	// Replace deletes the records that the store holds, and begins anew after the interrupted restore of another
	// snapshot. Otherwise the store must hold no record under the prefix.
	Replace bool
	// Finish, unless nil, completes the store before servers may use it.
	Finish func(ctx context.Context, engine store.Engine) error
}

// Into writes a snapshot into a store that runs elsewhere. All servers of the store must be stopped. After an error
// other than that of a check, the store is incomplete, and the same call completes it.
func Into(ctx context.Context, engine store.Engine, c Config) (info store.SnapshotInfo, err error) {
	// 1. Read the whole snapshot, before anything is changed.
	if info, err = c.inspect(engine.Limits()); err != nil {
		return info, err
	}
	// 2. Check that the store may be changed.
	marker, present, err := readMarker(ctx, engine, c.Prefix)
	if err != nil {
		return info, err
	}
	former, err := engine.List(ctx, string(c.Prefix))
	if err != nil {
		return info, fmt.Errorf("list the store: %w", err)
	}
	switch resumes := present.Modified != 0 && marker.Hash == info.Hash; {
	case c.Replace || resumes:
	case present.Modified != 0:
		return info, fmt.Errorf("%w, with another snapshot: %s", ErrIncomplete, marker.Name)
	case len(former.Records) > 0:
		return info, fmt.Errorf("%w: %d of them, such as %s", ErrNotEmpty, len(former.Records), former.Records[0].Key)
	}
	if err := checkUnused(ctx, engine, c.Prefix); err != nil {
		return info, err
	}
	// 3. Write the marker. Every later write compares it, so two restores cannot mix.
	w := &writer{
		engine: engine, prefix: c.Prefix,
		content: Marker{
			Hash: info.Hash, Revision: info.Revision, Name: c.Name, Began: time.Now().UTC(), ID: uuid.NewString(),
		},
		marker: store.Compare{Key: MarkerKey(c.Prefix), Modified: present.Modified},
	}
	if err := w.writeMarker(ctx); err != nil {
		return info, err
	}
	// 4. Delete what is there, and write the records.
	for _, r := range former.Records {
		if err := w.add(ctx, store.Op{Key: r.Key, Delete: true}); err != nil {
			return info, err
		}
	}
	if err := w.flush(ctx); err != nil { // a commit may not name a key twice
		return info, err
	}
	if err := c.write(ctx, w, info.Hash); err != nil {
		return info, err
	}
	// 5. Complete the store, then delete the marker.
	if c.Finish != nil {
		if err := c.Finish(ctx, engine); err != nil {
			return info, err
		}
	}
	return info, w.deleteMarker(ctx)
}

// inspect reads the snapshot to its end, and checks that it suits a store with these limits.
func (c *Config) inspect(limits store.Limits) (store.SnapshotInfo, error) {
	info, err := c.visit(func(r store.Record) error {
		need := store.SizeOf([]store.Group{{Ops: []store.Op{{Key: r.Key, Value: r.Value}}}})
		need.Bytes += len(MarkerKey(c.Prefix))
		need.Operations++
		if !limits.Hold(need) {
			return fmt.Errorf("the record %s has %d bytes, and one write to this store holds %d: %w", r.Key,
				len(r.Value), limits.Bytes, store.ErrTooLarge)
		}
		return nil
	})
	if err == nil && info.Prefix != string(c.Prefix) {
		err = fmt.Errorf("the keys of the snapshot begin with %q, and those of this store with %q: %w", info.Prefix,
			c.Prefix, store.ErrInvalid)
	}
	return info, err
}

// visit reads the snapshot.
func (c *Config) visit(each func(store.Record) error) (info store.SnapshotInfo, err error) {
	from, err := c.Open()
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return snapshotfile.Visit(from, each)
}

// write writes the records of the snapshot with the given hash.
func (c *Config) write(ctx context.Context, w *writer, hash string) error {
	again, err := c.visit(func(r store.Record) error { return w.add(ctx, store.Op{Key: r.Key, Value: r.Value}) })
	if err == nil && again.Hash != hash {
		err = fmt.Errorf("the snapshot %s was replaced during the restore: %w", c.Name, store.ErrInvalid)
	}
	if err != nil {
		return err
	}
	return w.flush(ctx)
}

// checkUnused returns ErrInUse if a leader beats.
func checkUnused(ctx context.Context, engine store.Engine, prefix store.Prefix) error {
	before, err := engine.List(ctx, election.BeatKey(prefix, ""))
	if err != nil {
		return fmt.Errorf("list the beats of leaders: %w", err)
	}
	if len(before.Records) == 0 {
		return nil
	}
	if err := pause.For(ctx, leaderWait); err != nil {
		return err
	}
	after, err := engine.List(ctx, election.BeatKey(prefix, ""))
	if err != nil {
		return fmt.Errorf("list the beats of leaders: %w", err)
	}
	revisions := map[string]uint64{}
	for _, r := range before.Records {
		revisions[r.Key] = r.Modified
	}
	for _, r := range after.Records {
		if revisions[r.Key] != r.Modified {
			return fmt.Errorf("%w: its leader beats under %s", ErrInUse, r.Key)
		}
	}
	return nil
}
