package apiserver

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// plainVault seals by inverting bits with the key's number. It opens nothing that another key sealed.
type plainVault struct{}

func (plainVault) NewKey(_ string, number uint64, now time.Time) (*cluster.SecretKey, error) {
	return &cluster.SecretKey{
		ID: strconv.FormatUint(number, 10), Number: number, Master: "m",
		Wrapped: []byte{byte(number)}, Created: now,
	}, nil
}

func (plainVault) Seal(k *cluster.SecretKey, s *cluster.Secret, value []byte) error {
	s.Key, s.Sealed = k.ID, append(bytes.Clone(k.Wrapped), value...)
	for i := 1; i < len(s.Sealed); i++ {
		s.Sealed[i] ^= 0xff
	}
	return nil
}

func (plainVault) Open(k *cluster.SecretKey, s *cluster.Secret) ([]byte, error) {
	if s.Sealed[0] != k.Wrapped[0] {
		return nil, errors.New("sealed with another key")
	}
	value := bytes.Clone(s.Sealed[1:])
	for i := range value {
		value[i] ^= 0xff
	}
	return value, nil
}

func (plainVault) All() string { return "text" }

func secretWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, func(c *Config) { c.Trust.Vault = plainVault{} })
}

func secretBody(value string) api.SecretWrite {
	return api.SecretWrite{Value: base64.StdEncoding.EncodeToString([]byte(value))}
}

const someSecret = "/v1/clusters/default/secrets/db"

func TestSecretsAreWrittenAndNeverRead(t *testing.T) {
	w := secretWorld(t)
	first := read[api.SecretView](t, w.want(201, "PUT", someSecret, secretBody("hush-value")))
	if first.Version != 1 || first.Size != 10 || first.Type != cluster.SecretValue {
		t.Errorf("made: %+v", first)
	}
	again := read[api.SecretView](t, w.want(200, "PUT", someSecret, secretBody("hush-value")))
	if again.Revision != first.Revision {
		t.Error("the same value again was written")
	}
	before, _ := w.tables.Snapshot().Secret("default", "db")
	second := read[api.SecretView](t, w.want(200, "PUT", someSecret, secretBody("hush-other")))
	after, _ := w.tables.Snapshot().Secret("default", "db")
	if second.Version != 2 || after.Value.Stamp == before.Value.Stamp {
		t.Errorf("another value: %+v, stamps %q and %q", second, before.Value.Stamp, after.Value.Stamp)
	}
	if last := w.lastEvent(); last.Type != "secret.updated" || strings.Contains(last.Message, "hush") {
		t.Errorf("got event %+v", last)
	}
	for _, path := range []string{someSecret, "/v1/secrets", "/v1/clusters/default/secrets", "/v1/events"} {
		if r := w.want(200, "GET", path, nil); bytes.Contains(r.body, []byte("hush")) ||
			bytes.Contains(r.body, []byte("sealed")) ||
			bytes.Contains(r.body, []byte(base64.StdEncoding.EncodeToString([]byte("hush-other")))) {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	w.want(204, "DELETE", someSecret, nil)
	w.want(404, "GET", someSecret, nil)
}

func TestFaultsOfSecretsQuoteNoValue(t *testing.T) {
	w := secretWorld(t)
	for _, body := range []string{
		`{"value": "hush!hush"}`, `{"value": 12344321}`, `{"value": ""}`, `{"value": "aHVzaA==", "type": "hushed"}`,
		`{"hush": "value"}`, `{"value": "aHVzaA==", "username": "ann"}`,
		`{"value": "aHVzaA==", "type": "registry"}`,
		`{"value": "aHVzaA==", "type": "registry", "registry": "a b", "username": "ann"}`, `{"value": ["hush"]}`,
	} {
		r := w.call("PUT", someSecret, body)
		if r.status != 422 || strings.Contains(r.faults(), "hush!") || strings.Contains(r.faults(), "12344321") ||
			strings.Contains(r.faults(), "aHVzaA") {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	w.want(400, "PUT", "/v1/clusters/default/secrets/Not_A_Name", secretBody("x"))
	w.want(422, "PUT", "/v1/clusters/nowhere/secrets/db", secretBody("x"))
	login := read[api.SecretView](t,
		w.want(201, "PUT", someSecret,
			`{"value": "aHVzaA==", "type": "registry", "registry": "ghcr.io", "username": "ann"}`))
	if login.Registry != "ghcr.io" || login.Size != 0 {
		t.Errorf("a login: %+v", login)
	}
}

// secretUser returns a service whose tasks use the secret db.
func secretUser(onChange string) map[string]any {
	d := definition("uses", 1)
	containers, _ := d["containers"].([]any)
	first, _ := containers[0].(map[string]any)
	first["secrets"] = []any{map[string]any{"secret": "db", "file": "/run/secrets/db", "on_change": onChange}}
	return d
}

func TestSecretsInUse(t *testing.T) {
	w := secretWorld(t)
	w.want(201, "PUT", "/v1/definitions/uses/1", secretUser("restart"))
	w.want(201, "PUT", "/v1/clusters/default/services/web", service("web", "uses@1", 1))
	w.want(201, "PUT", someSecret, secretBody("one"))
	if p := w.refused(409, "DELETE", someSecret, nil); !strings.Contains(p.Detail, "default/service/web") {
		t.Errorf("refused: %s", p.Detail)
	}
	// Nothing runs yet, so nothing is restarted. Later the same write restarts it.
	generation := func() uint64 {
		e, _ := w.tables.Snapshot().Service("default", "web")
		return e.Value.Generation
	}
	if v := read[api.SecretView](t, w.want(200, "PUT", someSecret, secretBody("two"))); len(v.Restarted) != 0 ||
		generation() != 1 {
		t.Errorf("restarted %v, generation %d", v.Restarted, generation())
	}
	id := cluster.ServiceTask("default", "web", 1, 0)
	w.put(map[string]any{"state/n1/" + string(id): cluster.Desired{
		Task: id, Attempt: 1, UUID: "u1", Node: "n1",
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
		Definition: cluster.Ref{Name: "uses", Version: 1},
	}})
	v := read[api.SecretView](t, w.want(200, "PUT", someSecret, secretBody("three")))
	if fmt.Sprint(v.Restarted) != "[web]" || generation() != 2 || fmt.Sprint(v.Users) != "[default/service/web]" {
		t.Errorf("restarted %v for %v, generation %d", v.Restarted, v.Users, generation())
	}
	w.want(204, "DELETE", someSecret+"?force=true", nil)
}
