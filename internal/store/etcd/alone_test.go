package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/store/snapshotfile"
	"github.com/berthd/berth/internal/testkit"
)

// commitRecords commits values under the default prefix.
func commitRecords(t *testing.T, e store.Engine, values map[string]any) {
	t.Helper()
	var g store.Group
	for key, value := range values {
		encoded, err := store.Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		g.Ops = append(g.Ops, store.Op{Key: store.DefaultPrefix + key, Value: encoded})
	}
	if _, err := e.Commit(t.Context(), []store.Group{g}); err != nil {
		t.Fatal(err)
	}
}

// sample fills a store with a little of everything.
func sample(t *testing.T, e store.Engine) cluster.Leader {
	t.Helper()
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	leader := cluster.Leader{Epoch: 7, Holder: "server-0", Incarnation: 1_000, Since: at, Member: "1"}
	commitRecords(t, e, map[string]any{
		"leader/main": leader, "service/c/web": struct{}{}, "service/c/db": struct{}{}, "job/c/j": struct{}{},
		"event/1": cluster.EventBatch{ID: "1", At: at.Add(time.Minute)},
		"plan/1":  cluster.PlanRecord{Seq: 1, At: at.Add(time.Second)},
	})
	for i := range 3 { // history, which does not count
		if err := write(t.Context(), e, "berth-beat/main"); err != nil {
			t.Fatal(i, err)
		}
	}
	return leader
}

// TestSnapshotInfo describes the content of a snapshot.
func TestSnapshotInfo(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	leader := sample(t, e)
	var snapshot bytes.Buffer
	if err := e.Snapshot(t.Context(), store.DefaultPrefix, &snapshot); err != nil {
		t.Fatal(err)
	}
	size := int64(snapshot.Len())
	got, err := snapshotfile.Inspect(&snapshot)
	if err != nil {
		t.Fatal(err)
	}
	present, err := e.List(t.Context(), "none/")
	if err != nil {
		t.Fatal(err)
	}
	want := store.SnapshotInfo{
		Prefix: store.DefaultPrefix, Revision: present.Revision, Keys: 6, Size: size,
		Nouns:   map[string]int{"leader": 1, "service": 2, "job": 1, "event": 1, "plan": 1},
		Taken:   time.Date(2026, 11, 20, 9, 1, 0, 0, time.UTC),
		Leaders: map[string]cluster.Leader{"main": leader},
	}
	ignored := cmpopts.IgnoreFields(store.SnapshotInfo{}, "Hash", "Saved", "Build")
	if diff := cmp.Diff(want, got, ignored); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
}

// TestSnapshotMoves carries the same records from a store in memory through etcd back to a store in memory, with their
// revisions. The store in etcd continues above the revision of the snapshot.
func TestSnapshotMoves(t *testing.T) {
	t.Parallel()
	values := rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.Byte()))
	steps := rapid.SliceOfN(values, 1, 8)
	for seed := range 4 {
		first := memory.New(memory.Options{})
		defer first.Close()
		for i, step := range steps.Example(seed) {
			var g store.Group
			for key, value := range step { // order-free: one commit
				g.Ops = append(g.Ops, store.Op{Key: "berth/" + key, Value: value, Delete: i > 0 && len(value)%5 == 0})
			}
			if _, err := first.Commit(t.Context(), []store.Group{g}); err != nil {
				t.Fatal(err)
			}
		}
		saved := func(e store.Engine) []byte {
			t.Helper()
			var out bytes.Buffer
			if err := e.Snapshot(t.Context(), "berth/", &out); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		content := func(snapshot []byte) ([]store.Record, uint64) {
			t.Helper()
			records, info, err := snapshotfile.ReadAll(bytes.NewReader(snapshot))
			if err != nil {
				t.Fatal(err)
			}
			return records, info.Revision
		}
		one := saved(first)
		dir := filepath.Join(t.TempDir(), "store")
		if err := Restore(dir, bytes.NewReader(one)); err != nil {
			t.Fatal(err)
		}
		second := open(t, Config{Dir: dir, NoSync: true})
		two := saved(second)
		third := memory.New(memory.Options{})
		defer third.Close()
		if err := third.Restore(bytes.NewReader(two)); err != nil {
			t.Fatal(err)
		}
		want, before := content(one)
		for name, snapshot := range map[string][]byte{"etcd": two, "memory": saved(third)} {
			got, after := content(snapshot)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("seed %d, in %s (-want +got):\n%s", seed, name, diff)
			}
			if after < before+restoreRevisionBump {
				t.Errorf("seed %d, in %s: revision %d, want far above %d", seed, name, after, before)
			}
		}
	}
}

// TestSnapshotOfCompactedRevision compacts the revision of a snapshot after its first page.
func TestSnapshotOfCompactedRevision(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	var g store.Group
	for i := range snapshotPage + 1 {
		g.Ops = append(g.Ops, store.Op{Key: fmt.Sprintf("berth/%06d", i), Value: make([]byte, 200)})
	}
	if _, err := e.Commit(t.Context(), []store.Group{g}); err != nil {
		t.Fatal(err)
	}
	err := e.Snapshot(t.Context(), "berth/", compactingWriter(func() {
		if err := write(t.Context(), e, "later"); err != nil {
			t.Error(err)
		}
		compact(t, e)
	}))
	if !errors.Is(err, store.ErrCompacted) {
		t.Errorf("got error %v, want ErrCompacted", err)
	}
}

// compactingWriter is a writer that calls a function at each write.
type compactingWriter func()

func (f compactingWriter) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestRestoreOfLargeRevision refuses a snapshot whose revision etcd could not continue from.
func TestRestoreOfLargeRevision(t *testing.T) {
	t.Parallel()
	var snapshot bytes.Buffer
	header := snapshotfile.NewHeader("berth/", math.MaxInt64)
	if err := snapshotfile.Write(&snapshot, header, nil); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "store")
	if err := Restore(dir, &snapshot); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "restore-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// TestSnapshotOfALaggard saves the store at one member as soon as another has acknowledged a write: it is in the
// snapshot.
func TestSnapshotOfALaggard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	for i := range 30 {
		result, err := f.engines[i%3].Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: "late", Value: make([]byte, 1<<16)}}}})
		if err != nil {
			t.Fatal(err)
		}
		var snapshot bytes.Buffer
		if err := f.engines[(i+1)%3].Snapshot(t.Context(), "", &snapshot); err != nil {
			t.Fatal(err)
		}
		info, err := snapshotfile.Inspect(&snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if info.Revision < result.Revision {
			t.Fatalf("the snapshot ends at revision %d, and revision %d was acknowledged before", info.Revision,
				result.Revision)
		}
	}
	// Without a quorum a member saves what it has.
	f.stop(0)
	f.stop(1)
	var snapshot bytes.Buffer
	if err := f.engines[2].Snapshot(t.Context(), "", &snapshot); err != nil {
		t.Fatalf("without a quorum: %v", err)
	}
	if _, err := snapshotfile.Inspect(&snapshot); err != nil {
		t.Errorf("without a quorum: %v", err)
	}
}

// TestRestoreAFleet restores a snapshot of three members to one, which the others join again. A former member is
// foreign to it.
func TestRestoreAFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	leader := sample(t, f.engines[0])
	var snapshot bytes.Buffer
	if err := f.engines[1].Snapshot(t.Context(), "", &snapshot); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), f.engines[2], "late"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f.stop(i)
	}
	old := f.configs[2]
	for i := range f.configs {
		f.configs[i].Dir += "-restored"
	}
	if err := Restore(f.configs[0].Dir, &snapshot); err != nil {
		t.Fatal(err)
	}
	f.start(0)
	before := time.Now()
	if err := election.Reincarnate(t.Context(), f.engines[0], store.DefaultPrefix,
		"a snapshot was restored"); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		f.start(i)
		f.promote(i)
	}
	e := f.engines[2]
	if _, err := e.Read(t.Context(), "late"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what came after the snapshot: got error %v, want ErrNotFound", err)
	}
	wantIncarnated(t, e, leader, before)
	// A member of before is not let in.
	f.stop(2)
	old.PeerURL = f.configs[2].PeerURL
	stranger, err := Open(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.Read(shortly(t, 3*time.Second), "late"); err == nil {
		t.Error("a member of before the restore reads from the members of after it")
	}
	if members, err := f.engines[0].Members(t.Context()); err != nil || len(members) != 3 {
		t.Errorf("members: got %+v, error %v", members, err)
	}
}

// wantIncarnated checks what Reincarnate leaves.
func wantIncarnated(t *testing.T, e store.Engine, former cluster.Leader, since time.Time) {
	t.Helper()
	record, err := e.Read(t.Context(), "berth/leader/main")
	if err != nil {
		t.Fatal(err)
	}
	leader, err := store.Decode[cluster.Leader](record.Value)
	if err != nil || leader.Holder != "" || leader.Member != "" || leader.Epoch != former.Epoch+1 ||
		leader.Incarnation < uint64(since.UnixMilli()) {
		t.Errorf("leader: got %+v, error %v, want no holder, epoch %d, a new incarnation", leader, err, former.Epoch+1)
	}
	if record, err = e.Read(t.Context(), "berth/recovery/main"); err != nil {
		t.Fatal(err)
	}
	recovery, err := store.Decode[cluster.Recovery](record.Value)
	if err != nil || recovery.State != cluster.RecoveryNeeded || recovery.Cause == "" ||
		recovery.Since.Before(since.Add(-time.Second)) {
		t.Errorf("recovery: got %+v, error %v", recovery, err)
	}
}

// TestForceAlone loses two of three members permanently. The third continues with all of its data, and new members join
// it. The lost members are refused if they come back.
func TestForceAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(_ int, c *Config) { c.NoSync = false })
	leader := sample(t, f.engines[0])
	if err := write(t.Context(), f.engines[1], "berth/last"); err != nil {
		t.Fatal(err)
	}
	seesEventually(t, f.engines[2], "berth/last")
	last, err := f.engines[2].List(t.Context(), "none/")
	if err != nil {
		t.Fatal(err)
	}
	if err := ForceAlone(t.Context(), f.configs[2], filepath.Join(t.TempDir(), "made")); err == nil {
		t.Error("a directory that is open was forced")
	}
	for i := range 3 {
		f.stop(i)
	}
	// A cancelled restore leaves the directory unchanged, and not as an unmarked store with one member.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := listing(t, f.configs[2].Dir)
	made := filepath.Join(t.TempDir(), "made")
	if err := ForceAlone(ended, f.configs[2], made); err == nil {
		t.Error("a store of one was made in no time")
	}
	if err := ForceAlone(t.Context(), f.configs[2], made); err != nil {
		t.Fatalf("force: %v", err)
	}
	if diff := cmp.Diff(before, listing(t, f.configs[2].Dir)); diff != "" {
		t.Errorf("the old directory was changed (-before +after):\n%s", diff)
	}
	if left, err := filepath.Glob(filepath.Join(made, "restore-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	f.configs[2].Dir = made
	began := time.Now()
	e := f.start(2)
	if err := election.Reincarnate(t.Context(), e, store.DefaultPrefix, "the other members were lost"); err != nil {
		t.Fatal(err)
	}
	wantIncarnated(t, e, leader, began)
	now, err := e.List(t.Context(), "berth/")
	if err != nil || now.Revision <= last.Revision || !slices.ContainsFunc(now.Records, func(r store.Record) bool {
		return r.Key == "berth/last"
	}) {
		t.Errorf("at revision %d after %d, error %v: %v", now.Revision, last.Revision, err, shownKeys(now))
	}
	members, err := e.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].PeerURL != f.configs[2].PeerURL {
		t.Errorf("members: got %+v, error %v", members, err)
	}
	// A lost one comes back: it waits for a quorum of the old ones, and does not get in.
	returned := f.start(1)
	if err := write(shortly(t, 5*time.Second), returned, "berth/odd"); err == nil {
		t.Error("a lost member that came back took a write")
	}
	f.stop(1)
	// With an empty directory it joins.
	f.configs[1].Dir += "-anew"
	f.configs[0], f.configs[2], f.engines[0], f.engines[2] = f.configs[2], f.configs[0], f.engines[2], f.engines[0]
	f.start(1)
	f.promote(1)
	seesEventually(t, f.engines[1], "berth/last")
	if err := ForceAlone(t.Context(), Config{Dir: t.TempDir()}, filepath.Join(t.TempDir(), "made")); !errors.Is(err,
		store.ErrInvalid) {
		t.Errorf("an empty directory: got error %v, want ErrInvalid", err)
	}
}

// listing returns the files of a directory with a hash of each.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// putAgain writes a value until the result is known. A slow machine misses heartbeats, and a change of the leader loses
// the results of writes.
func putAgain(t *testing.T, e *Engine, key string, value []byte) error {
	t.Helper()
	var err error
	for range 20 {
		_, err = e.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
		if errors.Is(err, store.ErrNoSpace) || !errors.Is(err, store.ErrUnknown) &&
			!errors.Is(err, store.ErrUnavailable) {
			return err
		}
		t.Logf("write %s again: %v", key, err)
	}
	return err
}

func shownKeys(l store.Listing) (keys []string) {
	for _, r := range l.Records {
		keys = append(keys, r.Key)
	}
	return keys
}

// TestDefragmentInTurn leaves three members' databases mostly empty. Each member returns its free space, one after the
// other, the leader last and as a follower.
func TestDefragmentInTurn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(_ int, c *Config) { c.Slack = 4 << 20 })
	e := f.engines[0]
	value := make([]byte, 1<<20)
	for i := range 24 {
		if err := putAgain(t, e, fmt.Sprint("k/", i%4), value); err != nil {
			t.Fatal(err)
		}
	}
	compact(t, e)
	size := func(i int) int64 { return f.engines[i].server.Server.Backend().Size() }
	ready := func(i int) error {
		if file := f.engines[i].server.Server.Backend(); file.SizeInUse() > file.Size()/2 {
			return fmt.Errorf("member %d: %d of %d bytes are in use", i, file.SizeInUse(), file.Size())
		}
		return nil
	}
	for i := range 3 {
		testkit.Eventually(t, 20*time.Second, func() error {
			if err := write(t.Context(), e, "k/0"); err != nil { // with a write the pages that became free are counted
				return err
			}
			return ready(i)
		})
	}
	lead := f.leader()
	follower, other := f.engines[(lead+1)%3], f.engines[(lead+2)%3]
	full := []int64{size(0), size(1), size(2)}
	tend := func(e *Engine) {
		t.Helper()
		if err := e.defragment(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// 1. The leader asks first, and waits.
	tend(f.engines[lead])
	f.engines[lead].turnWaitSince = time.Now().Add(-3 * defragInterval)
	// 2. A follower has the turn, and died with it: the other waits until it ends.
	held, err := follower.takeTurn(t.Context())
	if err != nil || held == nil {
		t.Fatalf("turn of a follower: got %v, error %v", held, err)
	}
	tend(other)
	if size((lead+2)%3) < full[(lead+2)%3]/2 {
		t.Error("two members defragmented concurrently")
	}
	tend(f.engines[lead])
	if size(lead) < full[lead]/2 {
		t.Error("the leader did not wait for the others")
	}
	if err := held.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	// 3. The followers, then the leader, which is none then.
	tend(other)
	tend(follower)
	tend(f.engines[lead])
	for i := range 3 {
		if size(i) > full[i]/2 {
			t.Errorf("member %d still takes %d of %d bytes", i, size(i), full[i])
		}
	}
	if f.leader() == lead {
		t.Error("the leader kept the leadership while its database was rewritten")
	}
	testkit.Eventually(t, 10*time.Second, func() error { return write(t.Context(), e, "after") })
	listing, err := e.List(t.Context(), "berth-engine/")
	if err != nil || len(listing.Records) > 0 {
		t.Errorf("left behind: %v, error %v", shownKeys(listing), err)
	}
}

// TestQuotaOfThree fills the databases of three members to their quota, which Health shows on each, and makes room. All
// accept writes again, and the alarms end.
func TestQuotaOfThree(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(_ int, c *Config) { c.Quota = 24 << 20 })
	value := make([]byte, 1<<20)
	var err error
	for i := 0; err == nil && i < 200; i++ {
		err = putAgain(t, f.engines[i%3], fmt.Sprint("k/", i), value)
	}
	if !errors.Is(err, store.ErrNoSpace) {
		t.Fatalf("at the quota: got error %v, want ErrNoSpace", err)
	}
	alarmed := map[string]bool{} // members: one suffices to stop the writes of all
	for i, e := range f.engines {
		testkit.Eventually(t, 10*time.Second, func() error {
			h, err := e.Health(t.Context())
			if err != nil || h.Writes || len(h.Alarms) == 0 || h.Alarms[0].Name != "NOSPACE" || h.Quota != 24<<20 ||
				!h.Quorum {
				return fmt.Errorf("health of member %d: got %+v, error %w", i, h, err)
			}
			for _, a := range h.Alarms {
				alarmed[a.Member] = true
			}
			return nil
		})
	}
	testkit.Eventually(t, 20*time.Second, func() error { return deleteAll(t.Context(), f.engines[0]) })
	testkit.Eventually(t, 60*time.Second, func() error {
		for _, e := range f.engines {
			e.relieveQuota(t.Context())
		}
		for i, e := range f.engines {
			if err := errors.Join(e.defragment(t.Context()), write(t.Context(), f.engines[0], "after")); err != nil {
				return fmt.Errorf("member %d: %w", i, err)
			}
			if h, err := e.Health(t.Context()); err != nil || !h.Writes || len(h.Alarms) > 0 || alarmed[e.MemberID()] &&
				h.Size > h.Quota*9/10 {
				return fmt.Errorf("health of member %d: got %+v, error %w", i, h, err)
			}
		}
		return nil
	})
}

// TestHealthOfAFullDisk shows the low-water mark before it is reached, and the refusal below it.
func TestHealthOfAFullDisk(t *testing.T) {
	e := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	wantHealth(t, e, func(h Health) bool {
		return h.Writes && h.Reason == "" && h.DiskFree > 0 && h.LowWater == DefaultLowWater && h.Version != ""
	})
	fill(e, true)
	wantHealth(t, e, func(h Health) bool { return !h.Writes && h.Reason != "" && h.DiskFree == 1<<20 && h.Quorum })
	fill(e, false)
	wantHealth(t, e, func(h Health) bool { return h.Writes })
}
