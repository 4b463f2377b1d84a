package consul

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
)

func reaching(s *consultest.Server) DialConfig {
	return DialConfig{
		Endpoints: []string{"http://" + s.Address}, Token: func() (string, error) { return s.Token, nil },
		Recheck: time.Hour,
	}
}

func dialAs(t *testing.T, config DialConfig) *Engine {
	t.Helper()
	engine, err := Dial(t.Context(), config)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { engine.Close() })
	return engine
}

// TestSuite runs the suite on a server of Consul with ACLs, with a token that has exactly the rights of the guide. The
// tests share the server; each has the keys below a prefix of its own.
func TestSuite(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	token := s.Permit(`key_prefix "suite-" { policy = "write" }`)
	var count atomic.Uint64
	enginetest.Test(t, enginetest.Suite{
		// The omitted cases concern the disk, which belongs to another operator, and restores of the whole of Consul.
		Without: []string{
			"commit/quota", "commit/space", "snapshot", "snapshot/back", "snapshot/future", "snapshot/damaged",
		},
		Open: func(t *testing.T) storetest.Subject {
			config := reaching(s)
			config.Prefix = fmt.Sprintf("suite-%d/", count.Add(1))
			config.Token = func() (string, error) { return token, nil }
			engine := dialAs(t, config)
			return storetest.Subject{
				Engine: engine,
				Restart: func() store.Engine {
					s.Kill()
					s.Start()
					s.AwaitLeader()
					return engine
				},
				Compact: func() {
					if _, err := s.Client().KV().DeleteTree(config.Prefix+logPrefix+"entry/", nil); err != nil {
						t.Error(err)
					}
				},
				Other:      func() store.Engine { return dialAs(t, config) },
				SkipsEqual: true, TextKeys: true,
			}
		},
	})
}

func write(ctx context.Context, e *Engine, key, value string) error {
	_, err := e.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: []byte(value)}}}})
	return err
}
