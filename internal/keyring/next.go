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

// Bounds of one transaction that seals values with the newest key.
const (
	maxSealsPerUnit       = 32
	maxSealedBytesPerUnit = 128 << 10 // the base64 of one more value still fits into any engine's limits
)

// errNoKey says that the record of a data key is missing.
var errNoKey = errors.New("the data key is missing in the store")

// Lacking returns the servers that do not list a master key in their records.
func Lacking(snap *store.Snapshot, id string) (lacking []*cluster.Server) {
	for e := range snap.Servers() {
		if !slices.Contains(e.Value.Masters, id) {
			lacking = append(lacking, e.Value)
		}
	}
	return lacking
}

// nextUnit returns, from the records only, the next write that brings the secrets to the newest keys. If some is false
// there is nothing to write now, and the error says what prevents the next step. A silent server is no error: the rekey
// waits for it.
func nextUnit(snap *store.Snapshot, prefix store.Prefix, vault *secrets.Vault, now time.Time) (u store.Unit, some bool,
	err error,
) {
	// 1. Use a master key that all servers hold.
	newest, replaced := snap.NewestMasterKey()
	if replaced && newest.Value.Used.IsZero() && newest.Value.Dropped.IsZero() &&
		len(Lacking(snap, newest.Value.ID)) == 0 {
		used := *newest.Value
		used.Used = now
		u.Compare(newest.Key, newest.Modified)
		return u, true, u.Put(newest.Key, &used)
	}
	// 2. Make a data key that is wrapped with the master key in use.
	master := snap.MasterInUse()
	key, sealing := snap.NewestSecretKey()
	if sealing && key.Value.Master != master {
		u, _, err = dataKeyUnit(snap, prefix, vault, now)
		return u, err == nil, err
	}
	// 3. Seal all values with that data key.
	if sealing {
		if u, some, err = resealUnit(snap, vault, key); some {
			return u, true, nil
		}
	}
	// 4. Delete data keys that seal nothing.
	if u, some := unusedKeysUnit(snap); some {
		return u, true, nil
	}
	if err != nil {
		return u, false, err
	}
	// 5. Retire master keys that wrap nothing.
	return retireUnit(snap, master, now)
}

// dataKeyUnit returns the write of another data key, wrapped with the master key in use. The unit also retires the
// former data keys, so no value is sealed with them after it.
func dataKeyUnit(snap *store.Snapshot, prefix store.Prefix, vault *secrets.Vault, now time.Time) (u store.Unit,
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

// resealUnit returns a write that seals some of the values again which are not sealed with the key. Values that cannot
// be opened are skipped and give an error.
func resealUnit(snap *store.Snapshot, vault *secrets.Vault, key store.Entry[cluster.SecretKey]) (u store.Unit,
	some bool, err error,
) {
	size, n := 0, 0
	for e := range snap.Secrets("") {
		if e.Value.Key == key.Value.ID {
			continue
		}
		if n == maxSealsPerUnit || n > 0 && size+len(e.Value.Sealed) > maxSealedBytesPerUnit {
			break
		}
		sealed, fault := reseal(snap, vault, key.Value, e.Value)
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
		if err := u.Put(e.Key, sealed); err != nil {
			return u, false, err
		}
		n, size = n+1, size+len(sealed.Sealed)
	}
	return u, n > 0, err
}

// reseal returns a secret with the same value, sealed with the key.
func reseal(snap *store.Snapshot, vault *secrets.Vault, key *cluster.SecretKey, s *cluster.Secret) (*cluster.Secret,
	error,
) {
	old, ok := snap.SecretKey(s.Key)
	if !ok {
		return nil, fmt.Errorf("the secret %s/%s is sealed with the data key %s: %w. Set the secret again, or delete "+
			"it", s.Cluster, s.Name, s.Key, errNoKey)
	}
	value, err := vault.Open(old.Value, s)
	switch {
	case errors.Is(err, secrets.ErrMaster):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w. Set the secret again, or delete it", err)
	}
	sealed := *s
	return &sealed, vault.Seal(key, &sealed, value)
}

// unusedKeysUnit returns the deletion of retired data keys that seal nothing.
func unusedKeysUnit(snap *store.Snapshot) (u store.Unit, some bool) {
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

// retireUnit returns the write that retires former master keys which wrap nothing any more.
func retireUnit(snap *store.Snapshot, inUse string, now time.Time) (u store.Unit, some bool, err error) {
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
