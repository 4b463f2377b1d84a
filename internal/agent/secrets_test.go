package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// secretServer is a server that can provide secrets and has none.
type secretServer struct{ *server }

// Secrets makes the agent keep secrets in memory.
func (secretServer) Secrets(context.Context, transport.SecretsRequest) (transport.SecretsReply, error) {
	return transport.SecretsReply{}, errors.New("there are no secrets")
}

// inMemory returns the path of a folder in memory.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "berth-agent-") //nolint:usetesting // t.TempDir is on the disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "secrets")
}

// The message of a ttl check, which the program chooses, is masked as well.
func TestTTLUpdatesAreMasked(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		def.Checks = []cluster.Check{
			{Name: "beat", Type: cluster.CheckTTL, Meaning: cluster.MeaningReadiness, TTL: cluster.Duration(time.Hour)},
		}
		def.Containers[0].Secrets = nil
		w.source, w.secretsDir = secretServer{w.server}, inMemory(t)
		w.restart()
		w.service("s1", def)
		folder := filepath.Join(w.secretsDir, "s1", "app", "0")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "password"), []byte("Hush-password"), 0o400); err != nil {
			t.Fatal(err)
		}
		if problem := w.sendTTLUpdate("s1", "beat", cluster.TTLFail, "no login with Hush-password"); problem != "" {
			t.Fatal(problem)
		}
		w.pass(time.Minute)
		text := fmt.Sprintf("%+v", w.agent.attempts.find("", "s1").View().Record.CheckResults)
		if !strings.Contains(text, "no login with [secret]") || strings.Contains(text, "Hush") {
			t.Errorf("the check shows %s", text)
		}
	})
}
