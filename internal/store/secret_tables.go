package store

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
)

// secretTables hold secrets in their stored form, and the records of the keys that seal them.
type secretTables struct {
	secrets    table[cluster.Secret]
	secretKeys table[cluster.SecretKey]
	masterKeys table[cluster.MasterKey]
}

// Secret returns a secret in its stored form: sealed.
func (s *secretTables) Secret(inCluster, name string) (Entry[cluster.Secret], bool) {
	return s.secrets.Get(inCluster + "/" + name)
}

// Secrets returns the secrets of a cluster by name, or those of all clusters where the name is empty.
func (s *secretTables) Secrets(inCluster string) iter.Seq[Entry[cluster.Secret]] {
	return scan(s.secrets, folder(inCluster))
}

// RegistrySecret returns the secret of a cluster for the images of a registry: the first by name if there are several.
func (s *secretTables) RegistrySecret(inCluster, registry string) (Entry[cluster.Secret], bool) {
	for e := range s.Secrets(inCluster) {
		if e.Value.Type == cluster.SecretRegistry && e.Value.Registry == registry {
			return e, true
		}
	}
	return Entry[cluster.Secret]{}, false
}

// MissingSecret returns the first secret, by name, that a definition needs and the cluster does not have. A definition
// needs secrets for its containers and for pulling their images. It returns "" if none is missing.
func (s *secretTables) MissingSecret(inCluster string, d *cluster.TaskDefinition) string {
	for _, name := range d.Secrets() {
		if _, ok := s.Secret(inCluster, name); !ok {
			return name
		}
	}
	return ""
}

// SecretKey returns a data key, wrapped: secrets are or were sealed with it.
func (s *secretTables) SecretKey(id string) (Entry[cluster.SecretKey], bool) {
	return s.secretKeys.Get(id)
}

// SecretKeys returns all data keys, by id.
func (s *secretTables) SecretKeys() iter.Seq[Entry[cluster.SecretKey]] { return scan(s.secretKeys, "") }

// NewestSecretKey returns the data key with the highest number: new secrets are sealed with it.
func (s *secretTables) NewestSecretKey() (newest Entry[cluster.SecretKey], ok bool) {
	for e := range s.SecretKeys() {
		if !ok || e.Value.Number > newest.Value.Number {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// MasterKey returns the record of a master key. The record does not hold the key itself.
func (s *secretTables) MasterKey(id string) (Entry[cluster.MasterKey], bool) {
	return s.masterKeys.Get(id)
}

// MasterKeys returns the records of all master keys, by id. There are none before the first master key was replaced.
func (s *secretTables) MasterKeys() iter.Seq[Entry[cluster.MasterKey]] { return scan(s.masterKeys, "") }

// NewestMasterKey returns the record with the highest number, whether or not its key is in use yet.
func (s *secretTables) NewestMasterKey() (newest Entry[cluster.MasterKey], ok bool) {
	for e := range s.MasterKeys() {
		if !ok || e.Value.Number > newest.Value.Number {
			newest, ok = e, true
		}
	}
	return newest, ok
}

// MasterInUse returns the id of the master key that wraps new data keys. It is "" if the store does not say, as before
// the first secret.
func (s *secretTables) MasterInUse() (id string) {
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
