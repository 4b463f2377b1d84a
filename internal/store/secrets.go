package store

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
)

// Secret returns a secret as it is kept: sealed.
func (s *Snapshot) Secret(inCluster, name string) (Entry[cluster.Secret], bool) {
	return s.secrets.Get(inCluster + "/" + name)
}

// Secrets returns those of a cluster, by name, or all with "".
func (s *Snapshot) Secrets(inCluster string) iter.Seq[Entry[cluster.Secret]] {
	return scan(s.secrets, folder(inCluster))
}

// SecretKey returns a key that secrets are or were sealed with, wrapped.
func (s *Snapshot) SecretKey(id string) (Entry[cluster.SecretKey], bool) { return s.secretKeys.Get(id) }

// SecretKeys returns all of them, by id.
func (s *Snapshot) SecretKeys() iter.Seq[Entry[cluster.SecretKey]] { return scan(s.secretKeys, "") }

// NewestSecretKey returns the one with the highest number, with which secrets are sealed from now on.
func (s *Snapshot) NewestSecretKey() (newest Entry[cluster.SecretKey], ok bool) {
	for e := range s.SecretKeys() {
		if !ok || e.Value.Number > newest.Value.Number {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// MasterKey returns what is known of a master key of that id.
func (s *Snapshot) MasterKey(id string) (Entry[cluster.MasterKey], bool) { return s.masterKeys.Get(id) }

// MasterKeys returns what is known of all of them, by id: none before the first was replaced.
func (s *Snapshot) MasterKeys() iter.Seq[Entry[cluster.MasterKey]] { return scan(s.masterKeys, "") }

// NewestMasterKey returns the one with the highest number, used or yet to be.
func (s *Snapshot) NewestMasterKey() (newest Entry[cluster.MasterKey], ok bool) {
	for e := range s.MasterKeys() {
		if !ok || e.Value.Number > newest.Value.Number {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// MasterInUse returns the id of the master key that new data keys are wrapped with; "" where the store does not say, as
// before the first secret.
func (s *Snapshot) MasterInUse() (id string) {
	number := uint64(0)
	for e := range s.MasterKeys() {
		if !e.Value.Used.IsZero() && e.Value.Number > number {
			id, number = e.Value.ID, e.Value.Number
		}
	}
	if k, ok := s.NewestSecretKey(); id == "" && ok {
		id = k.Value.Master
	}
	return id
}

// RegistrySecret returns the secret of a cluster for the images of a registry: of several the first by name.
func (s *Snapshot) RegistrySecret(inCluster, registry string) (Entry[cluster.Secret], bool) {
	for e := range s.Secrets(inCluster) {
		if e.Value.Type == cluster.SecretRegistry && e.Value.Registry == registry {
			return e, true
		}
	}
	return Entry[cluster.Secret]{}, false
}

// MissingSecret returns the first secret, by name, that a definition's containers are handed or pulled with and that
// the cluster does not have; "" for none.
func (s *Snapshot) MissingSecret(inCluster string, d *cluster.TaskDefinition) string {
	for _, name := range d.Secrets() {
		if _, ok := s.Secret(inCluster, name); !ok {
			return name
		}
	}
	return ""
}

// Lacks says which secret a task waits for that nobody has made, and how that is done; "" for none.
func (s *Snapshot) Lacks(p *cluster.Pending) string {
	d, ok := s.Definition(p.Definition)
	if !ok {
		return ""
	}
	name := s.MissingSecret(p.Owner.Cluster, d.Value)
	if name == "" {
		return ""
	}
	return cluster.NoSecret(p.Owner.Cluster, name)
}
