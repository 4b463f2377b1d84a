package etcd

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
	"github.com/berthd/berth/internal/testkit"
)

// TestEndIsNotAlwaysRemoval ends etcd's server under an engine: that is no removal, and no message says to delete
// anything. The error of a removal is distinguished from other errors of etcd.
func TestEndIsNotAlwaysRemoval(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	e.server.Server.HardStop()
	select {
	case <-e.lifetime.Done():
	case <-testkit.Context(t, 10*time.Second).Done():
		t.Fatal("the engine continues without its server")
	}
	if _, err := e.Read(t.Context(), "a"); !errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrRemoved) {
		t.Errorf("a read after the end: got error %v, want ErrClosed and not ErrRemoved", err)
	}
	for text, want := range map[string]bool{
		"the member has been permanently removed from the cluster": true, "the disk is on fire": false,
	} {
		var c etcdlog.Contacts
		etcdlog.NewForMember(slog.New(slog.DiscardHandler), &c).Warn("server error", zap.Error(errors.New(text)))
		if why, removed := c.Ended(); why != text || removed != want {
			t.Errorf("%q: got %q, removed: %v", text, why, removed)
		}
	}
}
