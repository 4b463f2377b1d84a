package restore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/store/restore"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

const prefix = store.Prefix(store.DefaultPrefix)

// saved is a snapshot in a file that was made of these values by key.
type saved []byte

func save(t *testing.T, count int) saved {
	t.Helper()
	engine := memory.New(memory.Options{})
	defer engine.Close()
	put(t, engine, prefix.Leader("default"), encode(t, cluster.Leader{Epoch: 3, Holder: "s1", Incarnation: 1}))
	put(t, engine, prefix.Server("s1"), encode(t, cluster.Server{ID: "s1"}))
	for i := range count {
		put(t, engine, fmt.Sprintf("berth/x/%04d", i), strings.Repeat("v", 1000))
	}
	var out bytes.Buffer
	if err := engine.Snapshot(t.Context(), store.DefaultPrefix, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func encode(t *testing.T, record any) string {
	t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

func put(t *testing.T, engine store.Engine, key, value string) {
	t.Helper()
	op := store.Op{Key: key, Value: []byte(value)}
	if _, err := engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{op}}}); err != nil {
		t.Fatal(err)
	}
}

func (s saved) config() restore.Config {
	return restore.Config{
		Prefix: prefix, Name: "saved",
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s)), nil },
	}
}

// wantContent checks that the store holds exactly the records of the snapshot under the prefix.
func wantContent(t *testing.T, engine store.Engine, s saved) {
	t.Helper()
	want, _, err := snapshotfile.ReadAll(bytes.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	got, err := engine.List(t.Context(), store.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	text := func(records []store.Record) (all []string) {
		for _, r := range records {
			all = append(all, r.Key+"="+string(r.Value))
		}
		return all
	}
	if diff := cmp.Diff(text(want), text(got.Records)); diff != "" {
		t.Errorf("the store (-want +got):\n%s", diff)
	}
	if err := restore.CheckComplete(t.Context(), engine, prefix); err != nil {
		t.Errorf("the store is complete: got error %v", err)
	}
}

// TestInto restores into empty stores, with limits far below the size of the snapshot.
func TestInto(t *testing.T) {
	for _, consul := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			engine := memory.New(memory.Options{Consul: consul})
			defer engine.Close()
			put(t, engine, "foreign", "stays")
			s := save(t, 1000)
			info, err := restore.Into(t.Context(), engine, s.config())
			if err != nil || info.Keys != 1002 {
				t.Fatalf("got %d records and error %v, want 1002", info.Keys, err)
			}
			wantContent(t, engine, s)
			if r, err := engine.Read(t.Context(), "foreign"); err != nil || string(r.Value) != "stays" {
				t.Errorf("a record outside of the prefix: got %q, error %v", r.Value, err)
			}
		})
	}
}

// TestRefusals checks each reason against a restore. None changes the store.
func TestRefusals(t *testing.T) {
	s := save(t, 3)
	other := save(t, 4)
	for name, c := range map[string]struct {
		prepare func(*testing.T, *memory.Engine)
		change  func(*restore.Config)
		want    error
	}{
		"not empty": {
			func(t *testing.T, e *memory.Engine) { put(t, e, "berth/a", "1") }, nil, restore.ErrNotEmpty,
		},
		"in use": {
			func(t *testing.T, e *memory.Engine) {
				go func() {
					for i := range 20 {
						time.Sleep(election.BeatEvery) // in-bubble: a leader beats
						key := election.BeatKey(prefix, "default")
						op := store.Op{Key: key, Value: fmt.Append(nil, i)}
						_, _ = e.Commit(t.Context(), []store.Group{{Ops: []store.Op{op}}})
					}
				}()
				put(t, e, election.BeatKey(prefix, "default"), "first")
			}, nil, restore.ErrInUse,
		},
		"damaged": {nil, func(c *restore.Config) {
			c.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s[:len(s)-1])), nil }
		}, store.ErrInvalid},
		"of another prefix": {nil, func(c *restore.Config) {
			var out bytes.Buffer
			if err := snapshotfile.Write(&out, snapshotfile.NewHeader("other/", 1), nil); err != nil {
				t.Error(err)
			}
			c.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
		}, store.ErrInvalid},
		"a record that is too large": {nil, func(c *restore.Config) {
			var out bytes.Buffer
			r := store.Record{Key: "berth/a", Value: make([]byte, 5<<20), Created: 1, Modified: 1}
			if err := snapshotfile.Write(&out, snapshotfile.NewHeader("berth/", 1), []store.Record{r}); err != nil {
				t.Error(err)
			}
			c.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
		}, store.ErrTooLarge},
		"after an interrupted restore of another file": {func(t *testing.T, e *memory.Engine) {
			c := other.config()
			c.Finish = func(context.Context, store.Engine) error { return errInterrupted }
			if _, err := restore.Into(t.Context(), e, c); !errors.Is(err, errInterrupted) {
				t.Errorf("got error %v, want that it was interrupted", err)
			}
		}, nil, restore.ErrIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := memory.New(memory.Options{})
				defer engine.Close()
				if c.prepare != nil {
					c.prepare(t, engine)
				}
				before, err := engine.List(t.Context(), store.DefaultPrefix)
				if err != nil {
					t.Fatal(err)
				}
				config := s.config()
				if c.change != nil {
					c.change(&config)
				}
				if _, err := restore.Into(t.Context(), engine, config); !errors.Is(err, c.want) {
					t.Errorf("got error %v, want %v", err, c.want)
				}
				after, err := engine.List(t.Context(), store.DefaultPrefix)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before.Records, after.Records); diff != "" {
					t.Errorf("the refusal changed the store (-before +after):\n%s", diff)
				}
				time.Sleep(time.Minute) // in-bubble: the leader ends
			})
		})
	}
}

var errInterrupted = errors.New("interrupted")

// TestReplace deletes what the store holds, also after an interrupted restore of another file.
func TestReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		defer engine.Close()
		put(t, engine, "berth/a", "1")
		put(t, engine, election.BeatKey(prefix, "default"), "of a leader that ended")
		for _, count := range []int{700, 300} {
			s := save(t, count)
			c := s.config()
			c.Replace = true
			if _, err := restore.Into(t.Context(), engine, c); err != nil {
				t.Fatal(err)
			}
			wantContent(t, engine, s)
			c.Finish = func(context.Context, store.Engine) error { return errInterrupted }
			if _, err := restore.Into(t.Context(), engine, c); !errors.Is(err, errInterrupted) {
				t.Fatalf("got error %v, want that it was interrupted", err)
			}
		}
	})
}

// TestInterrupted ends a restore at each of its commits. The store is then unchanged, or refused until the same restore
// has completed it.
func TestInterrupted(t *testing.T) {
	s := save(t, 300)
	commits := 0
	for end := 1; commits == 0 || end <= commits; end++ {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			engine := memory.New(memory.Options{Consul: true, Hooks: memory.Hooks{
				Before: func(context.Context, []store.Group) error {
					if n++; n >= end {
						return errInterrupted
					}
					return nil
				},
			}})
			defer engine.Close()
			other := engine.Open(memory.Hooks{})
			defer other.Close()
			_, err := restore.Into(t.Context(), engine, s.config())
			if !errors.Is(err, errInterrupted) {
				t.Fatalf("commit %d: got error %v, want that it was interrupted", end, err)
			}
			incomplete := restore.CheckComplete(t.Context(), other, prefix)
			if (end > 1) != errors.Is(incomplete, restore.ErrIncomplete) {
				t.Errorf("after %d commits: got error %v from the check", end-1, incomplete)
			}
			counted := 0
			whole := other.Open(memory.Hooks{Before: func(context.Context, []store.Group) error {
				counted++
				return nil
			}})
			defer whole.Close()
			if _, err := restore.Into(t.Context(), whole, s.config()); err != nil {
				t.Fatalf("again after %d commits: %v", end-1, err)
			}
			wantContent(t, other, s)
			if end == 1 {
				commits = counted
			}
		})
	}
	if commits < 4 {
		t.Errorf("the restore has %d commits: too few for the test", commits)
	}
}

// TestLostResults loses the results of commits, applied or not. The store holds the snapshot at the end.
func TestLostResults(t *testing.T) {
	s := save(t, 300)
	for _, applied := range []bool{false, true} {
		for lose := 1; lose <= 5; lose++ {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				fault := func(context.Context) error {
					if n++; n == lose {
						return fmt.Errorf("lost: %w", store.ErrUnknown)
					}
					return nil
				}
				var hooks memory.Hooks
				if applied {
					hooks.After = func(ctx context.Context, _ []store.Group, _ store.Result) error { return fault(ctx) }
				} else {
					hooks.Before = func(ctx context.Context, _ []store.Group) error { return fault(ctx) }
				}
				engine := memory.New(memory.Options{Consul: true, Hooks: hooks})
				defer engine.Close()
				plain := engine.Open(memory.Hooks{})
				defer plain.Close()
				put(t, plain, "berth/x/0000", "former")
				c := s.config()
				c.Replace = true
				if _, err := restore.Into(t.Context(), engine, c); err != nil {
					t.Fatalf("the result of commit %d is lost (applied: %v): %v", lose, applied, err)
				}
				wantContent(t, plain, s)
			})
		}
	}
}

// TestLateDeletion applies the deletion of a former record, whose result was lost, after the restore has written the
// record. The marker's new revision refuses it.
func TestLateDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := save(t, 1)
		var late []store.Group
		engine := memory.New(memory.Options{Hooks: memory.Hooks{
			Before: func(_ context.Context, groups []store.Group) error {
				if late == nil && groups[0].Ops[0].Delete {
					late = groups
					return fmt.Errorf("lost: %w", store.ErrUnknown)
				}
				return nil
			},
		}})
		defer engine.Close()
		plain := engine.Open(memory.Hooks{})
		defer plain.Close()
		put(t, plain, "berth/x/0000", "former")
		c := s.config()
		c.Replace = true
		c.Finish = func(ctx context.Context, _ store.Engine) error {
			_, err := plain.Commit(ctx, late)
			return err
		}
		if _, err := restore.Into(t.Context(), engine, c); err != nil || late == nil {
			t.Fatalf("got error %v, and the late deletion is %+v", err, late)
		}
		wantContent(t, plain, s)
	})
}

// TestTwoRestores begins a second restore during the first, which then ends.
func TestTwoRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		defer engine.Close()
		one, two := save(t, 10), save(t, 20)
		c := one.config()
		c.Finish = func(ctx context.Context, engine store.Engine) error {
			second := two.config()
			second.Replace = true
			_, err := restore.Into(ctx, engine, second)
			return err
		}
		if _, err := restore.Into(t.Context(), engine, c); !errors.Is(err, restore.ErrIncomplete) {
			t.Errorf("the first restore: got error %v, want that another one began", err)
		}
		wantContent(t, engine, two)
	})
}

// TestMark marks a restored store: nobody leads, a recovery is needed or decided, and no server is known.
func TestMark(t *testing.T) {
	for _, state := range []cluster.RecoveryState{"", cluster.RecoveryAdopt} {
		synctest.Test(t, func(t *testing.T) {
			engine := memory.New(memory.Options{})
			defer engine.Close()
			c := save(t, 1).config()
			c.Finish = func(ctx context.Context, engine store.Engine) error {
				return restore.Mark(ctx, engine, prefix, "a restore", restore.Decision{State: state, At: time.Now()})
			}
			if _, err := restore.Into(t.Context(), engine, c); err != nil {
				t.Fatal(err)
			}
			leader, err := engine.Read(t.Context(), prefix.Leader("default"))
			if err != nil {
				t.Fatal(err)
			}
			l, err := store.Decode[cluster.Leader](leader.Value)
			if err != nil || l.Holder != "" || l.Epoch != 4 || l.Incarnation < 2 {
				t.Errorf("leader: got %+v, error %v", l, err)
			}
			recovery, err := engine.Read(t.Context(), prefix.Recovery("default"))
			if err != nil {
				t.Fatal(err)
			}
			want := state
			if want == "" {
				want = cluster.RecoveryNeeded
			}
			r, err := store.Decode[cluster.Recovery](recovery.Value)
			if err != nil || r.State != want || r.Cause != "a restore" {
				t.Errorf("recovery: got %+v, error %v, want state %s", r, err, want)
			}
			if _, err := engine.Read(t.Context(), prefix.Server("s1")); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the record of a server: got error %v, want ErrNotFound", err)
			}
		})
	}
}
