package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/cluster"
)

// fakeKeys replaces no keys.
type fakeKeys struct{ refuse bool }

type refusal struct{ error }

func (refusal) Refused() bool { return true }

func (f *fakeKeys) fault() error {
	if f.refuse {
		return fmt.Errorf("about keys: %w", refusal{errors.New("the key k2 is in use")})
	}
	return nil
}

func (f *fakeKeys) Rotate(context.Context) (key string, sealed, dropped int, err error) {
	return "3", 67, 2, f.fault()
}

func (f *fakeKeys) Rekey(context.Context) (id string, began bool, err error) {
	return "k3", true, f.fault()
}
func (f *fakeKeys) Drop(context.Context, string) error { return f.fault() }

// TestMasterKeys checks that keys are shown by id with their holders and their secrets, and that a refusal is a
// conflict with its sentence.
func TestMasterKeys(t *testing.T) {
	keys := &fakeKeys{}
	w := newWorld(t, func(c *Config) { c.Trust.Vault, c.Trust.Keys = plainVault{}, keys })
	list := func() (short []string) {
		t.Helper()
		for _, v := range read[[]api.MasterKeyView](t, w.want(200, "GET", "/v1/secrets/master-keys", nil)) {
			short = append(short, fmt.Sprintf("%s %s %d %v %v", v.ID, v.State, v.Secrets, v.Holders, v.Lacking))
		}
		return short
	}
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, list()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// Before the first secret and the first rekey.
	w.put(map[string]any{"server/s1": cluster.Server{ID: "s1", Name: "one", Masters: []string{"k1"}}})
	check("of a fresh store", "k1 in-use 0 [one] []")
	now := time.Now()
	w.put(map[string]any{
		"secretkey/1":      cluster.SecretKey{ID: "1", Number: 1, Master: "k1", Created: now},
		"secret/default/a": cluster.Secret{Cluster: "default", Name: "a", Key: "1"},
		"secret/default/b": cluster.Secret{Cluster: "default", Name: "b", Key: "1"},
	})
	check("with secrets", "k1 in-use 2 [one] []")
	// A key that one server lacks; then in use; then replaced; then dropped.
	w.put(map[string]any{
		"masterkey/k1": cluster.MasterKey{ID: "k1", Number: 1, Created: now, Used: now},
		"masterkey/k3": cluster.MasterKey{ID: "k3", Number: 2, Created: now},
		"server/s1":    cluster.Server{ID: "s1", Name: "one", Masters: []string{"k1", "k3"}},
		"server/s2":    cluster.Server{ID: "s2", Name: "two", Masters: []string{"k1"}},
	})
	check("on its way", "k3 handed-out 0 [one] [two]", "k1 in-use 2 [one two] []")
	w.put(map[string]any{
		"masterkey/k3":     cluster.MasterKey{ID: "k3", Number: 2, Created: now, Used: now},
		"secretkey/2":      cluster.SecretKey{ID: "2", Number: 2, Master: "k3", Created: now},
		"secret/default/b": cluster.Secret{Cluster: "default", Name: "b", Key: "2"},
	})
	check("half-way", "k3 in-use 1 [one] [two]", "k1 replaced 1 [one two] []")
	w.put(map[string]any{
		"masterkey/k1":     cluster.MasterKey{ID: "k1", Number: 1, Created: now, Used: now, Retired: now},
		"secretkey/1":      nil,
		"secret/default/a": cluster.Secret{Cluster: "default", Name: "a", Key: "2"},
	})
	check("at its end", "k3 in-use 2 [one] [two]", "k1 kept 0 [one two] []")
	w.put(map[string]any{"masterkey/k1": cluster.MasterKey{
		ID: "k1", Number: 1, Created: now, Used: now, Retired: now,
		Dropped: now,
	}})
	check("dropped", "k3 in-use 2 [one] [two]", "k1 dropped 0 [one two] []")

	if v := read[api.MasterKeyView](t, w.want(200, "POST", "/v1/secrets/rekey", nil)); v.ID != "k3" || !v.Began {
		t.Errorf("a rekey: %+v", v)
	}
	if v := read[api.SecretsKeyView](t,
		w.want(200, "POST", "/v1/secrets/rotate-key",
			nil)); v != (api.SecretsKeyView{Key: "3", Sealed: 67, Dropped: 2}) {
		t.Errorf("a rotation: %+v", v)
	}
	w.want(204, "DELETE", "/v1/secrets/master-keys/22c10e74a58be40d", nil)
	keys.refuse = true
	for _, call := range [][2]string{
		{"POST", "/v1/secrets/rekey"},
		{"POST", "/v1/secrets/rotate-key"},
		{"DELETE", "/v1/secrets/master-keys/k2"},
	} {
		if p := w.refused(409, call[0], call[1], nil); p.Detail != "about keys: the key k2 is in use" {
			t.Errorf("%v: %s", call, p.Detail)
		}
	}
	none := newWorld(t)
	none.refused(503, "POST", "/v1/secrets/rekey", nil)
}

// TestStatusShowsLackingKeys checks the alarm about a server without a necessary key, with its remedy.
func TestStatusShowsLackingKeys(t *testing.T) {
	now := noon
	w := newWorld(t, func(c *Config) {
		c.Trust.Vault, c.Trust.Keys = plainVault{}, &fakeKeys{}
		c.Now = func() time.Time { return now }
	})
	lacking := func() (found []string) {
		for _, alarm := range read[api.Status](t, w.want(200, "GET", "/v1/status", nil)).Alarms {
			if strings.Contains(alarm, "master key") {
				found = append(found, alarm)
			}
		}
		return found
	}
	w.put(map[string]any{
		"server/s1":        cluster.Server{ID: "s1", Name: "one", Masters: []string{"k1"}},
		"server/s2":        cluster.Server{ID: "s2", Name: "two", Masters: []string{"k1"}},
		"secretkey/1":      cluster.SecretKey{ID: "1", Number: 1, Master: "k1", Created: now},
		"secret/default/a": cluster.Secret{Cluster: "default", Name: "a", Key: "1"},
	})
	if got := lacking(); len(got) > 0 {
		t.Errorf("all have the first key: %q", got)
	}
	w.put(map[string]any{"server/s2": cluster.Server{ID: "s2", Name: "two", Masters: []string{"another"}}})
	if got := lacking(); len(got) != 1 || !strings.Contains(got[0], "server two lacks the master key k1") ||
		!strings.Contains(got[0], "berth operator secrets keys") {
		t.Errorf("a server without the key in use: %q", got)
	}
	w.put(map[string]any{
		"masterkey/k1": cluster.MasterKey{ID: "k1", Number: 1, Created: now, Used: now},
		"masterkey/k2": cluster.MasterKey{ID: "k2", Number: 2, Created: now},
		"server/s1":    cluster.Server{ID: "s1", Name: "one", Masters: []string{"k1", "k2"}},
		"server/s2":    cluster.Server{ID: "s2", Name: "two", Masters: []string{"k1"}},
	})
	if got := lacking(); len(got) > 0 {
		t.Errorf("a new key that was made just now: %q", got)
	}
	now = now.Add(2 * credentials.MasterKeyDeadline)
	if got := lacking(); len(got) != 1 ||
		!strings.Contains(got[0],
			"server two lacks the new master key k2 of secrets, which is not used before all have it") {
		t.Errorf("a new key that does not arrive: %q", got)
	}
}
