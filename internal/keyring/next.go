package keyring

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
)

// Bounds of one transaction in which values are sealed anew.
const (
	sealAtOnce  = 32
	bytesAtOnce = 128 << 10 // so that the base64 of one value more is within any engine's limits
)

// errNoKey says that the record of a data key is missing.
var errNoKey = errors.New("the data key is missing in the store")

// Lacking returns the servers whose files do not hold a master key, as far as their records say.
func Lacking(snap *store.Snapshot, id string) (lacking []*cluster.Server) {
	for e := range snap.Servers() {
		if !slices.Contains(e.Value.Masters, id) {
			lacking = append(lacking, e.Value)
		}
	}
	return lacking
}

// next returns the next write that brings the secrets to the newest keys, by the records alone; some is false where
// there is none to do now, and the error then says what stands against it. A server's silence is no error: the key
// waits for it.
func next(snap *store.Snapshot, prefix store.Prefix, vault *secrets.Vault, now time.Time) (u store.Unit, some bool,
	err error,
) {
	// 1. A master key that all servers hold is used.
	newest, replaced := snap.NewestMasterKey()
	if replaced && newest.Value.Used.IsZero() && newest.Value.Dropped.IsZero() &&
		len(Lacking(snap, newest.Value.ID)) == 0 {
		used := *newest.Value
		used.Used = now
		u.Compare(newest.Key, newest.Modified)
		return u, true, u.Put(newest.Key, &used)
	}
	// 2. The data key that values are sealed with is wrapped with it.
	master := snap.MasterInUse()
	key, sealing := snap.NewestSecretKey()
	if sealing && key.Value.Master != master {
		u, _, err = newDataKey(snap, prefix, vault, now)
		return u, err == nil, err
	}
	// 3. All values are sealed with that.
	if sealing {
		if u, some, err = sealAnew(snap, vault, key); some {
			return u, true, nil
		}
	}
	// 4. Data keys that seal nothing go.
	if u, some := unusedKeys(snap); some {
		return u, true, nil
	}
	if err != nil {
		return u, false, err
	}
	// 5. Master keys that wrap nothing are retired.
	return retired(snap, master, now)
}

// newDataKey is the write of another data key, wrapped with the master key in use, and of the records of those before:
// no value is sealed with them after it.
func newDataKey(snap *store.Snapshot, prefix store.Prefix, vault *secrets.Vault, now time.Time) (u store.Unit,
	id string, err error,
) {
	number := uint64(1)
	for e := range snap.SecretKeys() {
		number = max(number, e.Value.Number+1)
		if !e.Value.Retired.IsZero() {
			continue
		}
		old := *e.Value
		old.Retired = now
		u.Compare(e.Key, e.Modified)
		if err := u.Put(e.Key, &old); err != nil {
			return u, "", err
		}
	}
	k, err := vault.NewKey(snap.MasterInUse(), number, now)
	if err != nil {
		return u, "", err
	}
	u.Compare(prefix.SecretKey(k.ID), 0)
	return u, k.ID, u.Put(prefix.SecretKey(k.ID), k)
}

// sealAnew is the write of some of the values that are not sealed with the key. What cannot be opened is left, and
// told.
func sealAnew(snap *store.Snapshot, vault *secrets.Vault, key store.Entry[cluster.SecretKey]) (u store.Unit, some bool,
	err error,
) {
	size, n := 0, 0
	for e := range snap.Secrets("") {
		if e.Value.Key == key.Value.ID {
			continue
		}
		if n == sealAtOnce || n > 0 && size+len(e.Value.Sealed) > bytesAtOnce {
			break
		}
		anew, fault := sealedAnew(snap, vault, key.Value, e.Value)
		if fault != nil {
			if err == nil {
				err = fault
			}
			continue
		}
		if n == 0 {
			u.Compare(key.Key, key.Modified)
		}
		u.Compare(e.Key, e.Modified)
		if err := u.Put(e.Key, anew); err != nil {
			return u, false, err
		}
		n, size = n+1, size+len(anew.Sealed)
	}
	return u, n > 0, err
}

// sealedAnew returns a secret with the same value, sealed with the key.
func sealedAnew(snap *store.Snapshot, vault *secrets.Vault, key *cluster.SecretKey, s *cluster.Secret) (*cluster.Secret,
	error,
) {
	old, ok := snap.SecretKey(s.Key)
	if !ok {
		return nil, fmt.Errorf("the secret %s/%s is sealed with the data key %s: %w. Set the secret anew, or delete it",
			s.Cluster, s.Name, s.Key, errNoKey)
	}
	value, err := vault.Open(old.Value, s)
	switch {
	case errors.Is(err, secrets.ErrMaster):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w. Set the secret anew, or delete it", err)
	}
	anew := *s
	return &anew, vault.Seal(key, &anew, value)
}

// unusedKeys is the deletion of data keys that were replaced and that nothing is sealed with.
func unusedKeys(snap *store.Snapshot) (u store.Unit, some bool) {
	used := map[string]bool{}
	for e := range snap.Secrets("") {
		used[e.Value.Key] = true
	}
	for e := range snap.SecretKeys() {
		if !e.Value.Retired.IsZero() && !used[e.Value.ID] {
			u.Compare(e.Key, e.Modified)
			u.Delete(e.Key)
			some = true
		}
	}
	return u, some
}

// retired is the note that master keys before the one in use wrap nothing any more.
func retired(snap *store.Snapshot, inUse string, now time.Time) (u store.Unit, some bool, err error) {
	wraps := map[string]bool{}
	for e := range snap.SecretKeys() {
		wraps[e.Value.Master] = true
	}
	for e := range snap.MasterKeys() {
		m := *e.Value
		if m.ID == inUse || m.Used.IsZero() || !m.Retired.IsZero() || wraps[m.ID] {
			continue
		}
		m.Retired = now
		u.Compare(e.Key, e.Modified)
		if err := u.Put(e.Key, &m); err != nil {
			return u, false, err
		}
		u.Event(cluster.Event{
			Type: "secrets.rekeyed",
			Message: fmt.Sprintf("all secrets are sealed under the master key %s; %s is kept for snapshots "+
				"of before, until it is dropped", inUse, m.ID),
		})
		some = true
	}
	return u, some, nil
}
