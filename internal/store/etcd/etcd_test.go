package etcd

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	// TestQuotaReportsWhatWasWritten reaches the quota. TestThreeMembers and TestDial have other clients.
	without := []string{"commit/quota", "revision/others"}
	enginetest.Test(t, enginetest.Suite{Without: without, Open: func(t *testing.T) storetest.Subject {
		t.Parallel()
		return subject(t)
	}})
}

// open starts an engine on a directory, for the life of the test.
func open(t testing.TB, config Config) *Engine {
	t.Helper()
	config.Ballast = -1
	return openWith(t, config)
}

// openWith is open, with ballast.
func openWith(t testing.TB, config Config) *Engine {
	t.Helper()
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	engine, err := Open(t.Context(), config)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return engine
}

func subject(t *testing.T) storetest.Subject {
	dir := filepath.Join(t.TempDir(), "store")
	engine := open(t, Config{Dir: dir})
	return storetest.Subject{
		Engine: engine,
		Restart: func() store.Engine {
			if err := engine.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			engine = open(t, Config{Dir: dir})
			return engine
		},
		Compact: func() { compact(t, engine) },
		Restore: func(from io.Reader) (store.Engine, error) {
			restored := filepath.Join(t.TempDir(), "store")
			if err := Restore(restored, from); err != nil {
				return nil, err
			}
			engine = open(t, Config{Dir: restored})
			return engine, nil
		},
		Fill: func(full bool) { fill(engine, full) },
	}
}
