// Package keyring replaces the keys that secrets are sealed with, on all servers of a control plane.
//
// A value is sealed with a data key, which stands in the store wrapped by a master key, which stands in a file on each
// server (package secrets). To replace the master key:
//
//  1. The server that is asked (Rekey) makes a key, keeps it in its file, and writes the record masterkey/<id>, which
//     names it.
//  2. Each server that reads of a key that it lacks asks the others for it, over the connections of servers, keeps it
//     in its file, and lists it in its own record (hold).
//  3. Once all servers list it, the leader notes that it is used, and makes a data key that is wrapped with it. From
//     the write of that record on no value is sealed with an older data key: each write of a secret compares the record
//     of the key that it used.
//  4. The leader seals all other values anew, some in a transaction, then deletes the data keys that seal nothing, and
//     then notes that the older master key is retired: the store does not need it any more. Snapshots of before do, so
//     it stays in the files.
//  5. Whoever is asked to (Drop) notes that it is dropped, and each server takes it out of its file.
//
// What comes next follows from the records alone (next), and each write compares what it rests on. So it does not
// matter who dies when, how often a step is tried, or whether two servers believe to lead: the records stand as before
// the step or as after it.
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
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
)

const (
	// look is how often all is looked at anew without a change of the records: a file may have been added to by hand,
	// or a server be back.
	look = 5 * time.Second
	// rest is what comes between two looks however often records change.
	rest = 50 * time.Millisecond
	// tries bounds how often a write that others overtook is drawn anew.
	tries = 8
)

// Config is what New needs.
type Config struct {
	// Server is this server's id, and Vault its keys.
	Server string
	Vault  *secrets.Vault
	Engine store.Engine
	Tables *store.Tables
	// Domain stamps events with its store's incarnation; default cluster.DefaultDomain.
	Domain string
	// Leads reports whether this server is to carry out what was asked for; nil means always. At once.
	Leads func() bool
	// Fetch asks the other servers for a key that this one lacks, and returns its text; nil where there are none.
	Fetch func(ctx context.Context, id string) (text string, err error)
	// Now is the wall clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Keyring is one server's part. Its methods may be called concurrently with Run, which is called once.
type Keyring struct {
	config Config
	writer *store.Writer
	told   map[string]string // Run's alone: what the log was told of a subject last
}

// New returns a keyring that has started nothing.
func New(c Config) *Keyring {
	if c.Domain == "" {
		c.Domain = cluster.DefaultDomain
	}
	if c.Leads == nil {
		c.Leads = func() bool { return true }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keyring{config: c, told: map[string]string{}}
	k.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, func() uint64 {
		if l, ok := c.Tables.Snapshot().Leader(c.Domain); ok {
			return l.Value.Incarnation
		}
		return 0
	})
	return k
}

// Run keeps this server's file in line with the records, and carries out what was asked for while this server leads,
// until the context ends. It returns the context's error.
func (k *Keyring) Run(ctx context.Context) error {
	select {
	case <-k.config.Tables.Synced():
	case <-ctx.Done():
		return ctx.Err()
	}
	follower := k.config.Tables.Follow(store.TopicSecrets, store.TopicServers, store.TopicLeader)
	defer follower.Close()
	for {
		k.step(ctx)
		if err := wait(ctx, nil, rest); err != nil {
			return err
		}
		if err := wait(ctx, follower.Wake(), look); err != nil {
			return err
		}
		follower.Take()
	}
}

// wait waits for a channel or a time.
func wait(ctx context.Context, wake <-chan struct{}, at time.Duration) error {
	timer := time.NewTimer(at)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-timer.C:
	}
	return nil
}

// step does what there is to do now. What cannot be done is told once and tried again.
func (k *Keyring) step(ctx context.Context) {
	k.hold(ctx)
	if !k.config.Leads() {
		return
	}
	if err := k.finish(ctx); ctx.Err() == nil && k.news("sealing", err) {
		k.config.Log.Warn("secrets are not sealed with the newest key yet", "error", err)
	}
}

// news reports whether an error about a subject is another one than was told last; nil forgets that.
func (k *Keyring) news(about string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	was := k.told[about]
	k.told[about] = text
	return text != "" && text != was
}

// hold brings the file of this server in line with the records: it asks for the keys that it lacks, takes out those
// that were dropped, and lists what it has in the server's record.
func (k *Keyring) hold(ctx context.Context) {
	snap := k.config.Tables.Snapshot()
	wrapped := map[string]int{}
	for e := range snap.SecretKeys() {
		wrapped[e.Value.Master]++
	}
	needed := map[string]bool{} // whether the store needs it now
	for id := range wrapped {   // order-free: a set
		needed[id] = true
	}
	for e := range snap.MasterKeys() {
		m := e.Value
		switch {
		case m.Dropped.IsZero():
			needed[m.ID] = needed[m.ID] || m.Retired.IsZero()
		case wrapped[m.ID] == 0:
			if err := k.config.Vault.Drop(m.ID); k.news("dropping "+m.ID, err) {
				k.config.Log.Warn("a secrets key that was dropped is still in this server's file", "key", m.ID, "error",
					err)
			}
		}
	}
	for id, now := range needed { // order-free: each by itself
		err := k.obtain(ctx, id)
		if ctx.Err() != nil {
			return
		}
		if now && k.news("lacking "+id, err) {
			k.config.Log.Error("this server lacks a secrets key", "key", id, "error", err)
		}
	}
	k.list(ctx, snap)
}

// obtain has this server hold a key: by its file, to which somebody may have added it, or from another server.
func (k *Keyring) obtain(ctx context.Context, id string) error {
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
		return fmt.Errorf("%w. Nor was it got from the other servers: %w", lacks, err)
	}
	if err := k.config.Vault.Lacks(id); err != nil {
		return fmt.Errorf("another key than that was handed over: %w", err)
	}
	k.config.Log.Info("a secrets key was taken from another server", "key", id)
	return nil
}

// list writes which keys this server holds into its record, where that says something else. A server without a record
// was removed, or is about to write one.
func (k *Keyring) list(ctx context.Context, snap *store.Snapshot) {
	u, differs, err := k.listed(snap)
	if err == nil && differs {
		_, _, err = k.writer.Commit(ctx, []store.Unit{u}) // one that was overtaken is written at the next look
	}
	if err != nil && ctx.Err() == nil {
		k.config.Log.Warn("the keys of this server could not be listed in its record", "error", err)
	}
}

// listed is the write of this server's record with the keys that it holds, where that says something else.
func (k *Keyring) listed(snap *store.Snapshot) (u store.Unit, differs bool, err error) {
	e, ok := snap.Server(k.config.Server)
	if !ok || slices.Equal(e.Value.Masters, k.config.Vault.IDs()) {
		return u, false, nil
	}
	next := *e.Value
	next.Masters = k.config.Vault.IDs()
	u.Compare(e.Key, e.Modified)
	return u, true, u.Put(e.Key, &next)
}

// finish does what next says until there is nothing left to do now.
func (k *Keyring) finish(ctx context.Context) error {
	snap := k.config.Tables.Snapshot()
	for ctx.Err() == nil {
		u, some, err := next(snap, k.config.Tables.Prefix(), k.config.Vault, k.config.Now().UTC())
		if !some {
			return err
		}
		if snap, err = k.write(ctx, u); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// errOvertaken says that others wrote what a unit rests on.
var errOvertaken = errors.New("others write the same records")

// write commits a unit and returns a snapshot that holds it, or what overtook it.
func (k *Keyring) write(ctx context.Context, u store.Unit) (*store.Snapshot, error) {
	applied, revision, err := k.writer.Commit(ctx, []store.Unit{u})
	if err != nil {
		return nil, err
	}
	if !applied[0] {
		return k.config.Tables.Settled(ctx)
	}
	return k.config.Tables.WaitFor(ctx, revision)
}

// redrawn draws a write and commits it, anew where others were faster. It returns once this server's tables hold it.
func (k *Keyring) redrawn(ctx context.Context, draw func(*store.Snapshot) (store.Unit, error)) error {
	for range tries {
		snap, err := k.config.Tables.Settled(ctx)
		if err != nil {
			return err
		}
		u, err := draw(snap)
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

// Refusal is why something was not done that could be asked for, for whoever asked.
type Refusal struct{ text string }

// Error returns the sentence.
func (r *Refusal) Error() string { return r.text }

// Refused tells it from faults.
func (r *Refusal) Refused() bool { return true }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Rotate replaces the data key and seals all values with the new one. It returns the id of that, how many values it was
// to seal, and how many keys it is in the place of. What is interrupted is completed by the leader.
func (k *Keyring) Rotate(ctx context.Context) (key string, sealed, dropped int, err error) {
	err = k.redrawn(ctx, func(snap *store.Snapshot) (u store.Unit, err error) {
		sealed, dropped = count(snap.Secrets("")), count(snap.SecretKeys())
		u, key, err = newDataKey(snap, k.config.Tables.Prefix(), k.config.Vault, k.config.Now().UTC())
		if errors.Is(err, secrets.ErrMaster) {
			err = refuse("%v", err)
		}
		return u, err
	})
	if err != nil {
		return key, sealed, dropped, err
	}
	if err = k.finish(ctx); errors.Is(err, secrets.ErrSealed) || errors.Is(err, secrets.ErrMaster) ||
		errors.Is(err, errNoKey) {
		err = refuse("%v", err)
	}
	if err == nil {
		k.config.Log.Info("the data key of the secrets was rotated", "key", key, "sealed", sealed, "dropped", dropped)
	}
	return key, sealed, dropped, err
}

// Rekey makes another master key on this server and writes the record of it; the rest follows. Where another one is on
// its way already it returns that, and began is false.
func (k *Keyring) Rekey(ctx context.Context) (id string, began bool, err error) {
	made := ""
	err = k.redrawn(ctx, func(snap *store.Snapshot) (u store.Unit, err error) {
		if on, is := open(snap); is {
			id = on
			began = id == made && made != "" // a write of this call whose result was lost
			return u, nil
		}
		if err := mayRekey(snap, k.config.Vault); err != nil {
			return u, err
		}
		if made == "" {
			if made, err = k.config.Vault.Make(); err != nil { // durable before any record names it
				return u, err
			}
		}
		id, began = made, true
		return k.begun(snap, made)
	})
	// another was faster; where that is not known, the key stays
	if made != "" && id != made && (err == nil || errors.As(err, new(*Refusal))) {
		err = errors.Join(err, k.config.Vault.Drop(made))
	}
	return id, began, err
}

// open returns the master key that is on its way, of which a server that is there holds a copy.
func open(snap *store.Snapshot) (id string, is bool) {
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
		return "", false // it went with the server that made it
	}
	for e := range snap.MasterKeys() {
		if e.Value.ID != newest.Value.ID && !e.Value.Used.IsZero() && e.Value.Retired.IsZero() {
			return newest.Value.ID, true
		}
	}
	return "", false
}

// mayRekey refuses where a key would not come to all servers, or this one could not go on.
func mayRekey(snap *store.Snapshot, vault *secrets.Vault) error {
	var older, alone []string
	servers := count(snap.Servers())
	for e := range snap.Servers() {
		if s := e.Value; len(s.Masters) == 0 {
			older = append(older, fmt.Sprintf("%s (%s)", s.Name, s.Version))
		} else if s.API == "" && servers > 1 {
			alone = append(alone, s.Name)
		}
	}
	switch {
	case servers == 0:
		return refuse("this server has not written its record yet: try again in a moment")
	case len(older) > 0:
		return refuse("not every server knows of several master keys: upgrade %s first, or remove it with "+
			"`berth server remove` if it never comes back", strings.Join(older, ", "))
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

// begun is the write by which another master key begins: its record, that of the first one where there is none yet, and
// in this server's record that it holds it.
func (k *Keyring) begun(snap *store.Snapshot, id string) (u store.Unit, err error) {
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
	if self, differs, fault := k.listed(snap); fault == nil && differs {
		u.Compares, u.Ops = append(u.Compares, self.Compares...), append(u.Ops, self.Ops...)
	}
	u.Event(cluster.Event{Type: "secrets.rekey", Message: "the master key of the secrets is replaced by " + id +
		": it is handed to all servers, then all secrets are sealed anew"})
	return u, err
}

// Drop gives up a master key that nothing in the store is sealed with: all servers take it out of their files.
// Snapshots of before cannot be used without a copy of it any more. The same again changes nothing.
func (k *Keyring) Drop(ctx context.Context, id string) error {
	return k.redrawn(ctx, func(snap *store.Snapshot) (u store.Unit, err error) {
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
