package peers

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/store"
)

// TestSecretsKeyOfAnotherServer: a server that lacks a key gets it from a server with the key. A removed server gets no
// key.
func TestSecretsKeyOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2, s3 := g.start("s1", 0), g.start("s2", 0), g.start("s3", 0)
		pass(2 * time.Second)
		s3.mu.Lock()
		s3.secretsKeys = map[string]string{"k2": "the text of k2"}
		s3.mu.Unlock()
		for _, m := range []*member{s1, s2} {
			if text, err := m.SecretsKey(t.Context(), "k2"); err != nil || text != "the text of k2" {
				t.Errorf("%s: got %q, %v", m.id, text, err)
			}
		}
		_, err := s1.SecretsKey(t.Context(), "k3")
		for _, word := range []string{"name-s2", "name-s3", "it lacks the key, too"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("a key that no server has: got %v, want %q in it", err, word)
			}
		}
		// Its certificate is still valid for a while.
		if _, err := g.store.Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: store.DefaultPrefix + "server/s1", Delete: true}}}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if text, err := s1.SecretsKey(t.Context(), "k2"); err == nil ||
			!strings.Contains(err.Error(), "members of the control plane alone") {
			t.Errorf("a server that was removed: got %q, %v", text, err)
		}
		s3.stop()
		if _, err := s2.SecretsKey(t.Context(), "k2"); err == nil {
			t.Error("a server that is dead answered")
		}
	})
}
