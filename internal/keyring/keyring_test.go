package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/keyring"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is several servers in one bubble, over one store. Each keeps its file over its deaths.
type world struct {
	t     *testing.T
	store *memory.Engine
	dirs  map[string]string

	mu      sync.Mutex
	leader  string
	living  map[string]*member
	commits int // of keyrings
	// fatal, unless 0, is the number of the commit at which the server that makes it dies: before it is made, or after.
	fatal  int
	before bool
	died   string
}

// member is one life of a server.
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
		t: t, store: memory.New(memory.Options{}), dirs: map[string]string{}, living: map[string]*member{},
		leader: servers[0],
	}
	for _, id := range servers {
		w.dirs[id] = t.TempDir()
		w.start(id)
	}
	t.Cleanup(func() {
		for _, m := range w.all() { // order-free: each ends by itself
			m.stop()
		}
		_ = w.store.Close()
	})
	return w
}

func (w *world) all() map[string]*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.living)
}

func (w *world) lead(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = id
}

var errDied = errors.New("the server died")

// start starts a server, whose own record it writes as servers do.
func (w *world) start(id string) *member {
	w.t.Helper()
	m := &member{dead: make(chan struct{})}
	var err error
	if m.vault, err = secrets.Open(w.dirs[id], []byte("shared")); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	die := func(before bool) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if before {
			w.commits++
		}
		if w.commits != w.fatal || before != w.before || w.died != "" {
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
		Leads: func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.leader == id
		},
		Fetch: func(_ context.Context, key string) (string, error) {
			for other, o := range w.all() { // order-free: whoever has it
				if text := o.vault.Text(key); other != id && text != "" {
					return text, nil
				}
			}
			return "", errors.New("nobody has it")
		},
	})
	w.put("server/"+id, &cluster.Server{
		ID: id, Name: "name-" + id, API: "https://" + id, Version: "v",
		Masters: m.vault.IDs(),
	})
	var all sync.WaitGroup
	all.Go(func() { _ = m.tables.Run(ctx) })
	all.Go(func() { _ = m.Run(ctx) })
	m.stop = func() {
		cancel()
		all.Wait()
		_ = m.engine.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.living[id] == m {
			delete(w.living, id)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.living[id] = m
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

// snapshot is what the store holds.
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

// secrets makes so many, sealed with a data key under the first master key.
func (w *world) secrets(n int) {
	w.t.Helper()
	v, err := secrets.Open(w.dirs["s1"], []byte("shared"))
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

// opened demands that the file of each server opens all secrets, whatever step a rekey has come to.
func (w *world) opened(n int) {
	w.t.Helper()
	snap := w.snapshot()
	for id, dir := range w.dirs { // order-free: each by itself
		v, err := secrets.Open(dir, nil)
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

// done reports whether all is sealed under a master key, and the one before is retired.
func done(snap *store.Snapshot, id string) bool {
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

func pass(d time.Duration) {
	time.Sleep(d) // in-bubble: virtual
	synctest.Wait()
}

// Three servers: one is asked, another leads. The key comes to all of them, all values are sealed anew in several
// transactions, and then the older key can be given up, on servers that are down when they are back.
func TestRekeyOfThreeServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1", "s2", "s3")
		w.secrets(70)
		pass(time.Second)
		old := w.all()["s1"].vault.IDs()[0]
		w.all()["s3"].stop()
		id, began, err := w.all()["s2"].Rekey(t.Context())
		if err != nil || !began || id == old {
			t.Fatalf("rekey: %s, %v, %v", id, began, err)
		}
		pass(time.Minute)
		// One server is down: the key is not used before that has it.
		snap := w.snapshot()
		lacking := keyring.Lacking(snap, id)
		if snap.MasterInUse() != old || len(lacking) != 1 || lacking[0].ID != "s3" {
			t.Fatalf("in use is %s, it is lacking on %v", snap.MasterInUse(), lacking)
		}
		if again, began, err := w.all()["s1"].Rekey(t.Context()); err != nil || began || again != id {
			t.Errorf("asked again: %s, %v, %v", again, began, err)
		}
		if err := w.all()["s1"].Drop(t.Context(), old); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("the key in use is dropped: %v", err)
		}
		if err := w.all()["s1"].Drop(t.Context(), id); err == nil || !strings.Contains(err.Error(), "on its way") {
			t.Errorf("the key on its way is dropped: %v", err)
		}
		w.opened(70)
		w.start("s3")
		pass(time.Minute)
		snap = w.snapshot()
		if !done(snap, id) {
			t.Fatal("it did not end")
		}
		w.opened(70)
		for server, m := range w.all() { // order-free: each by itself
			if got := fmt.Sprint(m.vault.IDs()); got != fmt.Sprintf("[%s %s]", old, id) {
				t.Errorf("%s holds %s", server, got)
			}
		}
		told := ""
		for e := range snap.EventBatches() {
			for _, one := range e.Value.Events {
				told += one.Type + " "
			}
		}
		if told != "secrets.rekey secrets.rekeyed " {
			t.Errorf("told: %s", told)
		}
		// The older one goes, on a server that is down as well.
		w.all()["s2"].stop()
		for range 2 {
			if err := w.all()["s3"].Drop(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		w.start("s2")
		pass(time.Minute)
		for server, m := range w.all() { // order-free: each by itself
			if got := fmt.Sprint(m.vault.IDs()); got != fmt.Sprintf("[%s]", id) {
				t.Errorf("%s holds %s after the older one was dropped", server, got)
			}
		}
		w.opened(70)
		// And the next one.
		third, _, err := w.all()["s1"].Rekey(t.Context())
		pass(time.Minute)
		if err != nil || !done(w.snapshot(), third) {
			t.Errorf("the next rekey: %v", err)
		}
	})
}

// Whoever dies at whatever write, before it or after it, and whoever leads then: at each moment the file of each server
// opens all secrets, and in the end all of them are sealed under the new key.
func TestDeathAtEachWriteOfARekey(t *testing.T) {
	for _, before := range []bool{true, false} {
		for n := 1; ; n++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "s1", "s2")
				w.secrets(40)
				pass(time.Second)
				w.mu.Lock()
				w.commits, w.fatal, w.before = 0, n, before
				w.mu.Unlock()
				id, _, err := w.all()["s2"].Rekey(t.Context())
				if err != nil && !errors.Is(err, errDied) && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				pass(time.Minute)
				w.opened(40)
				w.mu.Lock()
				died := w.died
				w.mu.Unlock()
				if reached = died != ""; reached {
					w.all()[died].stop()
					left := map[string]string{"s1": "s2", "s2": "s1"}[died]
					w.lead(left)
					pass(time.Minute)
					w.opened(40)
					w.start(died)
					pass(time.Minute)
					if again, _, err := w.all()[left].Rekey(t.Context()); err != nil {
						t.Fatal(err)
					} else if !done(w.snapshot(), id) {
						id = again
					}
					pass(time.Minute)
				}
				w.opened(40)
				if !done(w.snapshot(), id) {
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

// A key that went with the server that made it, before another one had it, is given up for the next.
func TestKeyThatWentWithItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1", "s2", "s3")
		w.secrets(3)
		pass(time.Second)
		w.put("masterkey/lost", &cluster.MasterKey{ID: "lost", Number: 7, Created: time.Now()})
		pass(time.Minute)
		w.opened(3)
		id, began, err := w.all()["s2"].Rekey(t.Context())
		if err != nil || !began {
			t.Fatalf("rekey: %v, %v", began, err)
		}
		pass(time.Minute)
		snap := w.snapshot()
		if lost, _ := snap.MasterKey("lost"); !done(snap, id) || lost.Value.Dropped.IsZero() {
			t.Errorf("the lost key: %+v, and in use is %s, want %s", lost.Value, snap.MasterInUse(), id)
		}
		w.opened(3)
	})
}

// Where a build of before runs, or a server that none can reach, nothing begins.
func TestRekeyIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		server cluster.Server
		want   string
	}{
		"an older build": {
			cluster.Server{ID: "s2", Name: "two", API: "https://s2", Version: "0.9"},
			"upgrade two (0.9) first",
		},
		"out of all reach": {
			cluster.Server{ID: "s2", Name: "two", Version: "v", Masters: []string{"x"}},
			"two cannot be reached",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "s1")
			w.put("server/s2", &c.server)
			pass(time.Second)
			had := w.all()["s1"].vault.All()
			_, _, err := w.all()["s1"].Rekey(t.Context())
			if refusal := new(keyring.Refusal); !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			if w.all()["s1"].vault.All() != had {
				t.Errorf("%s: a key is left in the file", name)
			}
		})
	}
}

// A data key is rotated without the master key; what was interrupted is gone on with; a value that nobody can open
// holds up no other.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1")
		w.lead("nobody")
		w.secrets(67)
		v, err := secrets.Open(w.dirs["s1"], nil)
		if err != nil {
			t.Fatal(err)
		}
		// What an interrupted one leaves: another key, the first one retired, one secret sealed anew.
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
		pass(time.Second)
		key, sealed, dropped, err := w.all()["s1"].Rotate(t.Context())
		if err != nil || key != "3" || sealed != 67 || dropped != 2 {
			t.Errorf("rotated: key %s, %d sealed, %d dropped, %v", key, sealed, dropped, err)
		}
		w.opened(67)
		snap = w.snapshot()
		for e := range snap.SecretKeys() {
			if e.Value.ID != "3" {
				t.Errorf("the data key %s is left", e.Value.ID)
			}
		}
		// One that was damaged.
		e, _ = snap.Secret("default", "s7")
		torn := *e.Value
		torn.Sealed = torn.Sealed[:len(torn.Sealed)-1]
		w.put("secret/default/s7", &torn)
		pass(time.Second)
		if _, _, _, err = w.all()["s1"].Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "s7") ||
			!strings.Contains(err.Error(), "Set the secret anew") {
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

// A server that lacks a key says which, where it looks for it and what to do, and takes it in when it is added to its
// file.
func TestServerWithoutTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "s1")
		elsewhere, err := secrets.Create(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		k, err := elsewhere.NewKey("", 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.put("secretkey/1", k)
		pass(time.Minute)
		_, _, _, err = w.all()["s1"].Rotate(t.Context())
		_, _, again := w.all()["s1"].Rekey(t.Context())
		for _, err := range []error{err, again} {
			if refusal := new(keyring.Refusal); !errors.As(err, &refusal) ||
				!strings.Contains(err.Error(), k.Master+" is needed") ||
				!strings.Contains(err.Error(), "secrets.key holds") {
				t.Errorf("got %v, want that %s is needed", err, k.Master)
			}
		}
		if err := secrets.Write(w.dirs["s1"], w.all()["s1"].vault.All()+elsewhere.All()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if _, _, _, err := w.all()["s1"].Rotate(t.Context()); err != nil {
			t.Errorf("with the key in the file: %v", err)
		}
	})
}
