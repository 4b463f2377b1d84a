package store

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
)

// Secret returns a secret in its stored form: sealed.
func (s *Snapshot) Secret(inCluster, name string) (Entry[cluster.Secret], bool) {
	return s.secrets.Get(inCluster + "/" + name)
}

// Secrets returns the secrets of a cluster by name, or those of all clusters where the name is empty.
func (s *Snapshot) Secrets(inCluster string) iter.Seq[Entry[cluster.Secret]] {
	return scan(s.secrets, folder(inCluster))
}

// SecretKey returns a data key, wrapped: secrets are or were sealed with it.
func (s *Snapshot) SecretKey(id string) (Entry[cluster.SecretKey], bool) { return s.secretKeys.Get(id) }

// SecretKeys returns all data keys, by id.
func (s *Snapshot) SecretKeys() iter.Seq[Entry[cluster.SecretKey]] { return scan(s.secretKeys, "") }

// NewestSecretKey returns the data key with the highest number: new secrets are sealed with it.
func (s *Snapshot) NewestSecretKey() (newest Entry[cluster.SecretKey], ok bool) {
	for e := range s.SecretKeys() {
		if !ok || e.Value.Number > newest.Value.Number {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// MasterKey returns the record of a master key. The record does not hold the key itself.
func (s *Snapshot) MasterKey(id string) (Entry[cluster.MasterKey], bool) { return s.masterKeys.Get(id) }

// MasterKeys returns the records of all master keys, by id. There are none before the first master key was replaced.
func (s *Snapshot) MasterKeys() iter.Seq[Entry[cluster.MasterKey]] { return scan(s.masterKeys, "") }

// NewestMasterKey returns the record with the highest number, whether or not its key is in use yet.
func (s *Snapshot) NewestMasterKey() (newest Entry[cluster.MasterKey], ok bool) {
	for e := range s.MasterKeys() {
		if !ok || e.Value.Number > newest.Value.Number {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// MasterInUse returns the id of the master key that wraps new data keys. It is "" if the store does not say, as before
// the first secret.
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

// RegistrySecret returns the secret of a cluster for the images of a registry: the first by name if there are several.
func (s *Snapshot) RegistrySecret(inCluster, registry string) (Entry[cluster.Secret], bool) {
	for e := range s.Secrets(inCluster) {
		if e.Value.Type == cluster.SecretRegistry && e.Value.Registry == registry {
			return e, true
		}
	}
	return Entry[cluster.Secret]{}, false
}

// MissingSecret returns the first secret, by name, that a definition needs and the cluster does not have. A definition
// needs secrets for its containers and for pulling their images. It returns "" if none is missing.
func (s *Snapshot) MissingSecret(inCluster string, d *cluster.TaskDefinition) string {
	for _, name := range d.Secrets() {
		if _, ok := s.Secret(inCluster, name); !ok {
			return name
		}
	}
	return ""
}

// Lacks returns a message if a task waits for a secret that does not exist. The message names the secret and says how
// to create it. Lacks returns "" if no secret is missing.
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
