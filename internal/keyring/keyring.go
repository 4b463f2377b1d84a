// Package keyring replaces the keys of secrets on all servers of a control plane.
//
// A value is sealed with a data key. The data key is in the store, wrapped by a master key, which is in a file on each
// server (package secrets). A rekey replaces the master key:
//
//  1. One server (Rekey) makes a key, keeps it in its file, and writes the record masterkey/<id>.
//  2. Each server that lacks the key asks the others for it over the connections between servers. It keeps the key in
//     its file, and lists it in its own record (syncFile).
//  3. Once all servers list it, the leader notes that it is used, and makes a data key that is wrapped with it. From
//     that write on, no value is sealed with an older data key: each write of a secret compares the record of the key
//     that it used.
//  4. The leader seals all other values again, some in each transaction, and deletes data keys that seal nothing. Then
//     it notes that the older master key is retired. Older snapshots still need that key, so it stays in the files.
//  5. A server that is asked to (Drop) notes that a key is dropped, and each server removes it from its file.
//
// The next step follows only from the records (nextUnit), and each write compares the records that it depends on. The
// records are therefore always as before a step or as after it. Servers may crash at any time, steps may be repeated,
// and two servers may believe that they lead.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
)

const (
	// checkInterval is the time between two checks without a change of the records: an operator may have added to a
	// file, or a server may be back.
	checkInterval = 5 * time.Second
	// minStepInterval is the least time between two checks, however often records change.
	minStepInterval = 50 * time.Millisecond
	// maxCommitTries bounds the tries of a write that loses to writes of others.
	maxCommitTries = 8
)

// Config is what New needs.
type Config struct {
	// Server is this server's id, and Vault its keys.
	Server string
	Vault  *secrets.Vault
	Engine store.Engine
	Tables *store.Tables
	// Fetch requests a key that this server lacks from the other servers, and returns its text. It is nil if there are
	// no other servers.
	Fetch func(ctx context.Context, id string) (text string, err error)
	// Now is the wall clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Keyring is one server's part. Its methods may be called concurrently with Run and Lead. Run is called once, and Lead
// once in each leadership term of this server.
type Keyring struct {
	config Config
	// writer writes without a fence: any server publishes its keys, and begins a rekey or a rotation that a user wants.
	writer *store.Writer
	logged errorFilter // used by Run alone
}

// committer writes units, as store.Writer does.
type committer interface {
	Commit(ctx context.Context, units []store.Unit) (applied []bool, revision uint64, err error)
}

// errorFilter holds the last logged error by subject.
type errorFilter map[string]string

// isNew reports whether an error about a subject differs from the last one; nil clears the last one.
func (f errorFilter) isNew(about string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	was := f[about]
	f[about] = text
	return text != "" && text != was
}

// New returns a keyring that has not started anything.
func New(c Config) *Keyring {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keyring{config: c, logged: errorFilter{}}
	k.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, func() uint64 {
		if l, ok := c.Tables.Snapshot().Leader(cluster.DefaultDomain); ok {
			return l.Value.Incarnation
		}
		return 0
	})
	return k
}

// Run updates this server's key file from the records. It ends with the context and returns its error.
func (k *Keyring) Run(ctx context.Context) error {
	return k.atChanges(ctx, k.syncFile)
}

// Lead carries out the steps of a rekey for one leadership term of this server, with the term's writer. It ends with
// the context and returns its error. If the writer reports that another server leads, Lead returns that error, which
// wraps store.ErrFenced. Any other failure is logged once and tried again.
func (k *Keyring) Lead(ctx context.Context, w committer) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	logged := errorFilter{}
	_ = k.atChanges(ctx, func(ctx context.Context) { // it ends with the context
		err := k.completeSteps(ctx, w)
		switch {
		case errors.Is(err, store.ErrFenced):
			end(fmt.Errorf("seal the secrets with the newest key: %w", err))
		case ctx.Err() == nil && logged.isNew("sealing", err):
			k.config.Log.Warn("secrets are not sealed with the newest key yet", "error", err)
		}
	})
	return context.Cause(ctx)
}

// atChanges does something once the tables are complete, and again whenever records change and now and then, until the
// context ends.
func (k *Keyring) atChanges(ctx context.Context, do func(context.Context)) error {
	select {
	case <-k.config.Tables.Synced():
	case <-ctx.Done():
		return ctx.Err()
	}
	follower := k.config.Tables.Follow(store.TopicSecrets, store.TopicServers, store.TopicLeader)
	defer follower.Close()
	for {
		do(ctx)
		if err := pause.For(ctx, minStepInterval); err != nil {
			return err
		}
		if _, err := pause.Until(ctx, follower.Wake(), checkInterval); err != nil {
			return err
		}
		follower.Take()
	}
}

// syncFile updates the key file of this server from the records. It fetches missing keys, removes dropped keys, and
// lists all others in the server's record.
func (k *Keyring) syncFile(ctx context.Context) {
	snap := k.config.Tables.Snapshot()
	wrapped := map[string]int{}
	for e := range snap.SecretKeys() {
		wrapped[e.Value.Master]++
	}
	needed := map[string]bool{} // values: whether the store needs the key now
	for id := range wrapped {   // order-free: a set
		needed[id] = true
	}
	for e := range snap.MasterKeys() {
		m := e.Value
		switch {
		case m.Dropped.IsZero():
			needed[m.ID] = needed[m.ID] || m.Retired.IsZero()
		case wrapped[m.ID] == 0:
			if err := k.config.Vault.Drop(m.ID); k.logged.isNew("dropping "+m.ID, err) {
				k.config.Log.Warn("a secrets key that was dropped is still in this server's file", "key", m.ID, "error",
					err)
			}
		}
	}
	for id, now := range needed { // order-free: independent
		err := k.obtainKey(ctx, id)
		if ctx.Err() != nil {
			return
		}
		if now && k.logged.isNew("lacking "+id, err) {
			k.config.Log.Error("this server lacks a secrets key", "key", id, "error", err)
		}
	}
	k.publishKeys(ctx, snap)
}

// obtainKey gets a key: from this server's file, to which an operator may have added it, or from another server.
func (k *Keyring) obtainKey(ctx context.Context, id string) error {
	lacks := k.config.Vault.Lacks(id)
	if lacks == nil {
		return nil
	}
	if err := k.config.Vault.Reload(); err != nil {
		return err
	}
	if k.config.Vault.Lacks(id) == nil {
		return nil
	}
	if k.config.Fetch == nil {
		return lacks
	}
	text, err := k.config.Fetch(ctx, id)
	if err == nil {
		err = k.config.Vault.Take(text)
	}
	if err != nil {
		return fmt.Errorf("%w. No other server handed it over: %w", lacks, err)
	}
	if err := k.config.Vault.Lacks(id); err != nil {
		return fmt.Errorf("another server handed over a wrong key: %w", err)
	}
	k.config.Log.Info("a secrets key was taken from another server", "key", id)
	return nil
}

// publishKeys lists the keys of this server in its record, if the record differs. A server without a record was
// removed, or is about to write one.
func (k *Keyring) publishKeys(ctx context.Context, snap *store.Snapshot) {
	u, differs, err := k.serverRecordUnit(snap)
	if err == nil && differs {
		_, _, err = k.writer.Commit(ctx, []store.Unit{u}) // a refused unit is written at the next check
	}
	if err != nil && ctx.Err() == nil {
		k.config.Log.Warn("the keys of this server could not be listed in its record", "error", err)
	}
}

// serverRecordUnit returns the write of this server's record with the keys that it holds, if the record differs.
func (k *Keyring) serverRecordUnit(snap *store.Snapshot) (u store.Unit, differs bool, err error) {
	e, ok := snap.Server(k.config.Server)
	if !ok || slices.Equal(e.Value.Masters, k.config.Vault.IDs()) {
		return u, false, nil
	}
	next := *e.Value
	next.Masters = k.config.Vault.IDs()
	u.Compare(e.Key, e.Modified)
	return u, true, u.Put(e.Key, &next)
}

// completeSteps writes the units of nextUnit with a writer until there is nothing to write now.
func (k *Keyring) completeSteps(ctx context.Context, w committer) error {
	snap := k.config.Tables.Snapshot()
	for ctx.Err() == nil {
		u, some, err := nextUnit(snap, k.config.Tables.Prefix(), k.config.Vault, k.config.Now().UTC())
		if !some {
			return err
		}
		if snap, err = k.commitUnit(ctx, w, u); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// errOvertaken says that another server wrote a record that a unit depends on.
var errOvertaken = errors.New("others write the same records")

// commitUnit commits a unit. It returns a snapshot that holds the unit or, if it was refused, the writes of others.
func (k *Keyring) commitUnit(ctx context.Context, w committer, u store.Unit) (*store.Snapshot, error) {
	applied, revision, err := w.Commit(ctx, []store.Unit{u})
	if err != nil {
		return nil, err
	}
	if !applied[0] {
		return k.config.Tables.Settled(ctx)
	}
	return k.config.Tables.WaitFor(ctx, revision)
}

// commitFresh builds a unit from the newest snapshot and commits it. It retries if another write came first. It returns
// once this server's tables hold the unit.
func (k *Keyring) commitFresh(ctx context.Context, build func(*store.Snapshot) (store.Unit, error)) error {
	for range maxCommitTries {
		snap, err := k.config.Tables.Settled(ctx)
		if err != nil {
			return err
		}
		u, err := build(snap)
		if err != nil || len(u.Ops) == 0 {
			return err
		}
		applied, revision, err := k.writer.Commit(ctx, []store.Unit{u})
		if err != nil {
			return err
		}
		if applied[0] {
			_, err := k.config.Tables.WaitFor(ctx, revision)
			return err
		}
	}
	return errOvertaken
}

// Refusal is the reason, for the user, why a request was refused.
type Refusal struct{ text string }

// Error returns the reason.
func (r *Refusal) Error() string { return r.text }

// Refused distinguishes a refusal from faults.
func (r *Refusal) Refused() bool { return true }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Rotate replaces the data key and seals all values with the new one. It returns the new key's id, the number of values
// to seal, and the number of keys that it replaces. The leader completes a rotation that is interrupted.
func (k *Keyring) Rotate(ctx context.Context) (key string, sealed, dropped int, err error) {
	err = k.commitFresh(ctx, func(snap *store.Snapshot) (u store.Unit, err error) {
		sealed, dropped = count(snap.Secrets("")), count(snap.SecretKeys())
		u, key, err = dataKeyUnit(snap, k.config.Tables.Prefix(), k.config.Vault, k.config.Now().UTC())
		if errors.Is(err, secrets.ErrMaster) {
			err = refuse("%v", err)
		}
		return u, err
	})
	if err != nil {
		return key, sealed, dropped, err
	}
	if err = k.completeSteps(ctx, k.writer); errors.Is(err, secrets.ErrSealed) || errors.Is(err, secrets.ErrMaster) ||
		errors.Is(err, errNoKey) {
		err = refuse("%v", err)
	}
	if err == nil {
		k.config.Log.Info("the data key of the secrets was rotated", "key", key, "sealed", sealed, "dropped", dropped)
	}
	return key, sealed, dropped, err
}

// Rekey makes another master key on this server and writes its record; the other steps follow. If a rekey is in
// progress it returns the key of that one, and began is false.
func (k *Keyring) Rekey(ctx context.Context) (id string, began bool, err error) {
	made := ""
	err = k.commitFresh(ctx, func(snap *store.Snapshot) (u store.Unit, err error) {
		if on, is := pendingKey(snap); is {
			id = on
			began = id == made && made != "" // this call wrote it, and the result was lost
			return u, nil
		}
		if err := mayRekey(snap, k.config.Vault); err != nil {
			return u, err
		}
		if made == "" {
			if made, err = k.config.Vault.Make(); err != nil { // the key is durable before any record names it
				return u, err
			}
		}
		id, began = made, true
		return k.rekeyUnit(snap, made)
	})
	// another server was faster; if that is unknown, the key stays
	if made != "" && id != made && (err == nil || errors.As(err, new(*Refusal))) {
		err = errors.Join(err, k.config.Vault.Drop(made))
	}
	return id, began, err
}

// pendingKey returns the master key of a rekey in progress, if a present server holds it.
func pendingKey(snap *store.Snapshot) (id string, is bool) {
	newest, ok := snap.NewestMasterKey()
	if !ok || !newest.Value.Dropped.IsZero() {
		return "", false
	}
	if newest.Value.Used.IsZero() {
		for e := range snap.Servers() {
			if slices.Contains(e.Value.Masters, newest.Value.ID) {
				return newest.Value.ID, true
			}
		}
		return "", false // the server that made it is gone, and the key with it
	}
	for e := range snap.MasterKeys() {
		if e.Value.ID != newest.Value.ID && !e.Value.Used.IsZero() && e.Value.Retired.IsZero() {
			return newest.Value.ID, true
		}
	}
	return "", false
}

// mayRekey refuses a rekey if the key could not reach all servers, or if this server lacks the key in use.
func mayRekey(snap *store.Snapshot, vault *secrets.Vault) error {
	var alone []string
	servers := count(snap.Servers())
	for e := range snap.Servers() {
		if s := e.Value; s.API == "" && servers > 1 {
			alone = append(alone, s.Name)
		}
	}
	switch {
	case servers == 0:
		return refuse("this server has not written its record yet: try again in a moment")
	case len(alone) > 0:
		return refuse("the new key could not come to all servers: %s cannot be reached by the others. Only "+
			"servers made with `berth server init` and `berth server join` can share another key",
			strings.Join(alone, ", "))
	}
	if id := snap.MasterInUse(); id != "" {
		if err := vault.Lacks(id); err != nil {
			return refuse("%v", err)
		}
	}
	return nil
}

// rekeyUnit returns the write that starts a rekey: the record of the new master key, and this server's record, which
// lists it. If there is no record of a master key yet, the unit also writes the record of the first key.
func (k *Keyring) rekeyUnit(snap *store.Snapshot, id string) (u store.Unit, err error) {
	prefix, now := k.config.Tables.Prefix(), k.config.Now().UTC()
	next := cluster.MasterKey{ID: id, Number: 1, Created: now}
	if newest, ok := snap.NewestMasterKey(); ok {
		next.Number = newest.Value.Number + 1
		u.Compare(newest.Key, newest.Modified)
		if newest.Value.Used.IsZero() && newest.Value.Dropped.IsZero() {
			lost := *newest.Value
			lost.Dropped = now
			err = u.Put(newest.Key, &lost)
		}
	} else {
		first := cluster.MasterKey{ID: snap.MasterInUse(), Number: 1, Created: now, Used: now}
		if first.ID == "" {
			first.ID = k.config.Vault.IDs()[0]
		}
		for e := range snap.SecretKeys() {
			if e.Value.Created.Before(first.Created) {
				first.Created, first.Used = e.Value.Created, e.Value.Created
			}
		}
		next.Number = 2
		u.Compare(prefix.MasterKey(first.ID), 0)
		err = u.Put(prefix.MasterKey(first.ID), &first)
	}
	u.Compare(prefix.MasterKey(id), 0)
	err = errors.Join(err, u.Put(prefix.MasterKey(id), &next))
	if self, differs, fault := k.serverRecordUnit(snap); fault == nil && differs {
		u.Compares, u.Ops = append(u.Compares, self.Compares...), append(u.Ops, self.Ops...)
	}
	u.Event(cluster.Event{Type: "secrets.rekey", Message: "the master key of the secrets is replaced by " + id +
		": it is handed to all servers, then all secrets are sealed again"})
	return u, err
}

// Drop gives up a master key that wraps nothing in the store: all servers remove it from their files. After that, older
// snapshots can be used only with a copy of the key. Dropping a key twice changes nothing.
func (k *Keyring) Drop(ctx context.Context, id string) error {
	return k.commitFresh(ctx, func(snap *store.Snapshot) (u store.Unit, err error) {
		e, ok := snap.MasterKey(id)
		switch {
		case !ok:
			return u, refuse("there is no master key %.40q: `berth operator secrets keys` lists them", id)
		case !e.Value.Dropped.IsZero():
			return u, nil
		case e.Value.Retired.IsZero() && snap.MasterInUse() == id:
			return u, refuse("the key %s is in use: `berth operator secrets rekey` replaces it", id)
		case e.Value.Retired.IsZero():
			return u, refuse("the key %s is on its way: wait until `berth operator secrets keys` shows it as kept", id)
		}
		for s := range snap.SecretKeys() {
			if s.Value.Master == id {
				return u, refuse("secrets are sealed with the key %s: `berth operator secrets rekey` replaces it", id)
			}
		}
		next := *e.Value
		next.Dropped = k.config.Now().UTC()
		u.Compare(e.Key, e.Modified)
		u.Event(cluster.Event{
			Type:    "secrets.key-dropped",
			Message: "the user dropped the master key " + id + " of the secrets",
		})
		return u, u.Put(e.Key, &next)
	})
}

// count counts the elements of a sequence.
func count[T any](all func(func(T) bool)) (n int) {
	for range all {
		n++
	}
	return n
}
