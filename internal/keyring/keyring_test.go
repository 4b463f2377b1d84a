package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/keyring"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is several servers in one bubble, over one store. Each keeps its file when it dies.
type world struct {
	t     *testing.T
	store *memory.Engine
	dirs  map[string]string

	mu      sync.Mutex
	leader  string
	running map[string]*member
	commits int // number of commits of keyrings
	// fatalCommit, unless 0, is the number of the commit at which its server dies: before the write if diesBefore, else
	// after.
	fatalCommit int
	diesBefore  bool
	died        string
}

// member is one run of a server.
type member struct {
	*keyring.Keyring
	vault  *secrets.Vault
	tables *store.Tables
	engine store.Engine
	dead   chan struct{}
	stop   func()
}

const prefix = store.DefaultPrefix

func newWorld(t *testing.T, servers ...string) *world {
	w := &world{
		t: t, store: memory.New(memory.Options{}), dirs: map[string]string{}, running: map[string]*member{},
		leader: servers[0],
	}
	for _, id := range servers {
		w.dirs[id] = t.TempDir()
		if first := w.dirs[servers[0]]; id != servers[0] {
			v, err := secrets.Open(first)
			if err == nil {
				err = secrets.Write(w.dirs[id], v.All())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.start(id)
	}
	t.Cleanup(func() {
		for _, m := range w.members() { // order-free: independent
			m.stop()
		}
		_ = w.store.Close()
	})
	return w
}

func (w *world) members() map[string]*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.running)
}

func (w *world) setLeader(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = id
}

func (w *world) isLeader(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leader == id
}

// leadWhileChosen runs the leader's part of a server while the server is the leader.
func (w *world) leadWhileChosen(ctx context.Context, id string, m *member) {
	writer := store.NewWriter(m.engine, m.tables.Prefix(), nil, func() uint64 { return 1 })
	for ctx.Err() == nil {
		if w.isLeader(id) {
			term, end := context.WithCancel(ctx)
			var leading sync.WaitGroup
			leading.Go(func() { _ = m.Lead(term, writer) })
			for ctx.Err() == nil && w.isLeader(id) {
				time.Sleep(20 * time.Millisecond) // in-bubble: virtual
			}
			end()
			leading.Wait()
		}
		time.Sleep(20 * time.Millisecond) // in-bubble: virtual
	}
}

var errDied = errors.New("the server died")

// start starts a server and writes its record, as servers do.
func (w *world) start(id string) *member {
	w.t.Helper()
	m := &member{dead: make(chan struct{})}
	var err error
	if m.vault, err = secrets.Open(w.dirs[id]); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	die := func(before bool) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if before {
			w.commits++
		}
		if w.commits != w.fatalCommit || before != w.diesBefore || w.died != "" {
			return nil
		}
		w.died = id
		cancel()
		return errDied
	}
	m.engine = w.store.Open(memory.Hooks{
		Before: func(context.Context, []store.Group) error { return die(true) },
		After: func(context.Context, []store.Group, store.Result) error {
			if err := die(false); err != nil {
				return fmt.Errorf("%w: %w", err, store.ErrUnknown)
			}
			return nil
		},
	})
	m.tables = store.NewTables(store.TablesConfig{Engine: m.engine})
	m.Keyring = keyring.New(keyring.Config{
		Server: id, Vault: m.vault, Engine: m.engine, Tables: m.tables,
		Fetch: func(_ context.Context, key string) (string, error) {
			for other, o := range w.members() { // order-free: any server that has it
				if text := o.vault.Text(key); other != id && text != "" {
					return text, nil
				}
			}
			return "", errors.New("no server has it")
		},
	})
	w.put("server/"+id, &cluster.Server{
		ID: id, Name: "name-" + id, API: "https://" + id, Version: "v",
		Masters: m.vault.IDs(),
	})
	var all sync.WaitGroup
	all.Go(func() { _ = m.tables.Run(ctx) })
	all.Go(func() { _ = m.Run(ctx) })
	all.Go(func() { w.leadWhileChosen(ctx, id, m) })
	m.stop = func() {
		cancel()
		all.Wait()
		_ = m.engine.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.running[id] == m {
			delete(w.running, id)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[id] = m
	return m
}

func (w *world) put(key string, record any) {
	w.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.Commit(w.t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: prefix + key, Value: value}}}}); err != nil {
		w.t.Fatal(err)
	}
}

// snapshot returns the present content of the store.
func (w *world) snapshot() *store.Snapshot {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	tables := store.NewTables(store.TablesConfig{Engine: w.store})
	var done sync.WaitGroup
	done.Go(func() { _ = tables.Run(ctx) })
	<-tables.Synced()
	snap := tables.Snapshot()
	cancel()
	done.Wait()
	return snap
}

// makeSecrets makes n secrets, sealed with a data key under the first master key.
func (w *world) makeSecrets(n int) {
	w.t.Helper()
	v, err := secrets.Open(w.dirs["s1"])
	if err != nil {
		w.t.Fatal(err)
	}
	k, err := v.NewKey("", 1, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.put("secretkey/1", k)
	for i := range n {
		s := &cluster.Secret{Cluster: "default", Name: fmt.Sprintf("s%d", i), Version: 3, Stamp: "stamp"}
		if err := v.Seal(k, s, []byte(fmt.Sprint("value ", i))); err != nil {
			w.t.Fatal(err)
		}
		w.put("secret/default/"+s.Name, s)
	}
}

// checkAllOpen fails the test unless the file of each server opens all secrets, at any step of a rekey.
func (w *world) checkAllOpen(n int) {
	w.t.Helper()
	snap := w.snapshot()
	for id, dir := range w.dirs { // order-free: independent
		v, err := secrets.Open(dir)
		if err != nil {
			w.t.Fatal(err)
		}
		found := 0
		for e := range snap.Secrets("") {
			k, ok := snap.SecretKey(e.Value.Key)
			if !ok {
				w.t.Fatalf("the data key %s of %s is missing", e.Value.Key, e.Value.Name)
			}
			value, err := v.Open(k.Value, e.Value)
			if want := "value " + strings.TrimPrefix(e.Value.Name, "s"); err != nil || string(value) != want ||
				e.Value.Version != 3 || e.Value.Stamp != "stamp" {
				w.t.Fatalf("by %s: %s is %q, %v, version %d", id, e.Value.Name, value, err, e.Value.Version)
			}
			found++
		}
		if found != n {
			w.t.Fatalf("%d secrets are there, want %d", found, n)
		}
	}
}

// isComplete reports whether all data keys are wrapped with a master key, and the former one is retired.
func isComplete(snap *store.Snapshot, id string) bool {
	for e := range snap.SecretKeys() {
		if e.Value.Master != id {
			return false
		}
	}
	for e := range snap.MasterKeys() {
		if m := e.Value; m.ID != id && m.Retired.IsZero() && m.Dropped.IsZero() {
			return false
		}
	}
	return snap.MasterInUse() == id
}

func advance(d time.Duration) {
	time.Sleep(d) // in-bubble: virtual
	synctest.Wait()
}

// One of three servers starts a rekey, and another leads. All servers get the key, and several transactions seal all
// values. Then the older key can be dropped. A server that is down drops it after its return.
func TestRekeyOfThreeServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1", "s2", "s3")
		w.makeSecrets(70)
		advance(time.Second)
		old := w.members()["s1"].vault.IDs()[0]
		w.members()["s3"].stop()
		id, began, err := w.members()["s2"].Rekey(t.Context())
		if err != nil || !began || id == old {
			t.Fatalf("rekey: %s, %v, %v", id, began, err)
		}
		advance(time.Minute)
		// One server is down: the key is not used before that server has it.
		snap := w.snapshot()
		lacking := keyring.Lacking(snap, id)
		if snap.MasterInUse() != old || len(lacking) != 1 || lacking[0].ID != "s3" {
			t.Fatalf("in use is %s, it is lacking on %v", snap.MasterInUse(), lacking)
		}
		if again, began, err := w.members()["s1"].Rekey(t.Context()); err != nil || began || again != id {
			t.Errorf("asked again: %s, %v, %v", again, began, err)
		}
		if err := w.members()["s1"].Drop(t.Context(), old); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("the key in use is dropped: %v", err)
		}
		if err := w.members()["s1"].Drop(t.Context(), id); err == nil || !strings.Contains(err.Error(), "on its way") {
			t.Errorf("the key on its way is dropped: %v", err)
		}
		w.checkAllOpen(70)
		w.start("s3")
		advance(time.Minute)
		snap = w.snapshot()
		if !isComplete(snap, id) {
			t.Fatal("it did not end")
		}
		w.checkAllOpen(70)
		for server, m := range w.members() { // order-free: independent
			if got := fmt.Sprint(m.vault.IDs()); got != fmt.Sprintf("[%s %s]", old, id) {
				t.Errorf("%s has %s", server, got)
			}
		}
		events := ""
		for e := range snap.EventBatches() {
			for _, one := range e.Value.Events {
				events += one.Type + " "
			}
		}
		if events != "secrets.rekey secrets.rekeyed " {
			t.Errorf("got events %s", events)
		}
		// The older key is dropped, also on a server that is down.
		w.members()["s2"].stop()
		for range 2 {
			if err := w.members()["s3"].Drop(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		}
		advance(time.Minute)
		w.start("s2")
		advance(time.Minute)
		for server, m := range w.members() { // order-free: independent
			if got := fmt.Sprint(m.vault.IDs()); got != fmt.Sprintf("[%s]", id) {
				t.Errorf("%s has %s after the older one was dropped", server, got)
			}
		}
		w.checkAllOpen(70)
		// A second rekey works, too.
		third, _, err := w.members()["s1"].Rekey(t.Context())
		advance(time.Minute)
		if err != nil || !isComplete(w.snapshot(), third) {
			t.Errorf("the next rekey: %v", err)
		}
	})
}

// A server dies at each write, before or after it, and the other one leads. At each moment the file of each server
// opens all secrets. In the end all of them are sealed under the new key.
func TestDeathAtEachWriteOfARekey(t *testing.T) {
	for _, before := range []bool{true, false} {
		for n := 1; ; n++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "s1", "s2")
				w.makeSecrets(40)
				advance(time.Second)
				w.mu.Lock()
				w.commits, w.fatalCommit, w.diesBefore = 0, n, before
				w.mu.Unlock()
				id, _, err := w.members()["s2"].Rekey(t.Context())
				if err != nil && !errors.Is(err, errDied) && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				advance(time.Minute)
				w.checkAllOpen(40)
				w.mu.Lock()
				died := w.died
				w.mu.Unlock()
				if reached = died != ""; reached {
					w.members()[died].stop()
					left := map[string]string{"s1": "s2", "s2": "s1"}[died]
					w.setLeader(left)
					advance(time.Minute)
					w.checkAllOpen(40)
					w.start(died)
					advance(time.Minute)
					if again, _, err := w.members()[left].Rekey(t.Context()); err != nil {
						t.Fatal(err)
					} else if !isComplete(w.snapshot(), id) {
						id = again
					}
					advance(time.Minute)
				}
				w.checkAllOpen(40)
				if !isComplete(w.snapshot(), id) {
					t.Errorf("write %d, before %v, by %q: it did not end", n, before, died)
				}
			})
			if !reached {
				if n < 7 {
					t.Errorf("a rekey had %d writes only", n-1)
				}
				break
			}
		}
	}
}

// A key is lost with the server that made it, before another server had it. The next rekey replaces it.
func TestKeyThatWentWithItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1", "s2", "s3")
		w.makeSecrets(3)
		advance(time.Second)
		w.put("masterkey/lost", &cluster.MasterKey{ID: "lost", Number: 7, Created: time.Now()})
		advance(time.Minute)
		w.checkAllOpen(3)
		id, began, err := w.members()["s2"].Rekey(t.Context())
		if err != nil || !began {
			t.Fatalf("rekey: %v, %v", began, err)
		}
		advance(time.Minute)
		snap := w.snapshot()
		if lost, _ := snap.MasterKey("lost"); !isComplete(snap, id) || lost.Value.Dropped.IsZero() {
			t.Errorf("the lost key: %+v, and in use is %s, want %s", lost.Value, snap.MasterInUse(), id)
		}
		w.checkAllOpen(3)
	})
}

// A rekey is refused if a server cannot be reached by the others.
func TestRekeyIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		server cluster.Server
		want   string
	}{
		"out of all reach": {
			cluster.Server{ID: "s2", Name: "two", Version: "v", Masters: []string{"x"}},
			"two cannot be reached",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "s1")
			w.put("server/s2", &c.server)
			advance(time.Second)
			had := w.members()["s1"].vault.All()
			_, _, err := w.members()["s1"].Rekey(t.Context())
			if refusal := new(keyring.Refusal); !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			if w.members()["s1"].vault.All() != had {
				t.Errorf("%s: a key is left in the file", name)
			}
		})
	}
}

// A deposed leader seals nothing and says so, even before its context ends (P1.4). The next leader completes the rekey.
func TestDeposedLeaderSealsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1")
		w.setLeader("nobody")
		w.makeSecrets(40)
		advance(time.Second)
		m, began := w.members()["s1"], time.Now()
		plane := controlplane.New(controlplane.Config{
			Engine: m.engine, Tables: m.tables, Domain: cluster.DefaultDomain, Server: "s1",
			Random: rand.New(rand.NewPCG(1, 1)), Logger: slog.New(slog.DiscardHandler), Now: time.Now,
			Clock: func() time.Duration { return time.Since(began) },
		})
		terms := make(chan *controlplane.TermWriter, 9)
		plane.Register("terms", func(ctx context.Context, w *controlplane.TermWriter) error {
			terms <- w
			<-ctx.Done()
			return ctx.Err()
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = plane.Run(ctx) })
		deposed := <-terms
		w.put(strings.TrimPrefix(m.tables.Prefix().Leader(cluster.DefaultDomain), prefix),
			&cluster.Leader{Epoch: 99, Incarnation: 1, Holder: "s2"})
		id, _, err := m.Rekey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Lead(t.Context(), deposed); !errors.Is(err, store.ErrFenced) {
			t.Errorf("the part of a deposed leader returns %v, want %v", err, store.ErrFenced)
		}
		if isComplete(w.snapshot(), id) {
			t.Error("a deposed leader sealed the secrets")
		}
		leading := <-terms // s2 is silent, so s1 takes over again
		term, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := m.Lead(term, leading); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the part of a leader returns %v, want %v", err, context.DeadlineExceeded)
		}
		stop()
		running.Wait()
		if !isComplete(w.snapshot(), id) {
			t.Error("the leader did not complete the rekey")
		}
		w.checkAllOpen(40)
	})
}

// A data key is rotated without its master key. An interrupted rotation is completed. A value that cannot be decrypted
// does not block others.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1")
		w.setLeader("nobody")
		w.makeSecrets(67)
		v, err := secrets.Open(w.dirs["s1"])
		if err != nil {
			t.Fatal(err)
		}
		// An interrupted rotation leaves another key, the first one retired, and one secret sealed with the new one.
		snap := w.snapshot()
		old, _ := snap.SecretKey("1")
		retired := *old.Value
		retired.Retired = time.Now()
		between, err := v.NewKey("", 2, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		e, _ := snap.Secret("default", "s5")
		moved := *e.Value
		if err := v.Seal(between, &moved, []byte("value 5")); err != nil {
			t.Fatal(err)
		}
		w.put("secretkey/1", &retired)
		w.put("secretkey/2", between)
		w.put("secret/default/s5", &moved)
		advance(time.Second)
		key, sealed, dropped, err := w.members()["s1"].Rotate(t.Context())
		if err != nil || key != "3" || sealed != 67 || dropped != 2 {
			t.Errorf("rotated: key %s, %d sealed, %d dropped, %v", key, sealed, dropped, err)
		}
		w.checkAllOpen(67)
		snap = w.snapshot()
		for e := range snap.SecretKeys() {
			if e.Value.ID != "3" {
				t.Errorf("the data key %s is left", e.Value.ID)
			}
		}
		// Damage one secret.
		e, _ = snap.Secret("default", "s7")
		torn := *e.Value
		torn.Sealed = torn.Sealed[:len(torn.Sealed)-1]
		w.put("secret/default/s7", &torn)
		advance(time.Second)
		if _, _, _, err = w.members()["s1"].Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "s7") ||
			!strings.Contains(err.Error(), "Set the secret again") {
			t.Errorf("with a damaged value: %v", err)
		}
		left := 0
		for e := range w.snapshot().Secrets("") {
			if e.Value.Key != "4" {
				left++
			}
		}
		if left != 1 {
			t.Errorf("%d are not sealed with the newest key, want the damaged one alone", left)
		}
	})
}

// A server that lacks a key names the key, the file and the remedy. It reads the key once an operator has added it to
// the file.
func TestServerWithoutTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1")
		elsewhere, err := secrets.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		k, err := elsewhere.NewKey("", 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.put("secretkey/1", k)
		advance(time.Minute)
		_, _, _, err = w.members()["s1"].Rotate(t.Context())
		_, _, again := w.members()["s1"].Rekey(t.Context())
		for _, err := range []error{err, again} {
			if refusal := new(keyring.Refusal); !errors.As(err, &refusal) ||
				!strings.Contains(err.Error(), k.Master+" is needed") ||
				!strings.Contains(err.Error(), "secrets.key holds") {
				t.Errorf("got %v, want that %s is needed", err, k.Master)
			}
		}
		if err := secrets.Write(w.dirs["s1"], w.members()["s1"].vault.All()+elsewhere.All()); err != nil {
			t.Fatal(err)
		}
		advance(time.Minute)
		if _, _, _, err := w.members()["s1"].Rotate(t.Context()); err != nil {
			t.Errorf("with the key in the file: %v", err)
		}
	})
}
