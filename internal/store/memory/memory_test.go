package memory_test

import (
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEngine(t *testing.T) {
	enginetest.Test(t, enginetest.Suite{Open: subject(memory.Options{}), Bubble: true})
}

func TestEngineLikeConsul(t *testing.T) {
	enginetest.Test(t, enginetest.Suite{Open: subject(memory.Options{Consul: true}), Bubble: true})
}

// subject returns a function that opens subjects whose restart is a crash.
func subject(options memory.Options) func(*testing.T) storetest.Subject {
	return func(t *testing.T) storetest.Subject {
		engine := memory.New(options)
		t.Cleanup(func() { engine.Close() })
		return storetest.Subject{
			Engine: engine,
			Restart: func() store.Engine {
				engine.Crash()
				engine.Restart()
				return engine
			},
			Compact:    engine.Compact,
			Other:      func() store.Engine { return engine.Open(memory.Hooks{}) },
			Restore:    func(from io.Reader) (store.Engine, error) { return engine, engine.Restore(from) },
			Fill:       engine.Fill,
			ReachQuota: engine.ReachQuota,
			Whole:      options.Consul, SkipsEqual: options.Consul, PrefixRevisions: options.Consul,
			TextKeys: options.Consul,
		}
	}
}
