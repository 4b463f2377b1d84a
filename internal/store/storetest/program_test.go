package storetest_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unguarded is an engine with a planted bug: its commits drop a compare of each group.
type unguarded struct{ *memory.Engine }

func (e unguarded) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	weaker := make([]store.Group, len(groups))
	for i, g := range groups {
		weaker[i] = store.Group{Compares: g.Compares[min(1, len(g.Compares)):], Ops: g.Ops}
	}
	return e.Engine.Commit(ctx, weaker)
}

// TestPrograms runs the cases as a program does, on an engine without and with a fault.
func TestPrograms(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(*memory.Engine) store.Engine
		want  []string // the failed cases
	}{
		"sound": {func(e *memory.Engine) store.Engine { return e }, nil},
		"a dropped compare": {
			func(e *memory.Engine) store.Engine { return unguarded{e} },
			[]string{"commit", "commit/groups", "commit/malformed", "commit/limits", "watch/progress", "campaign"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := func(t suite.T) storetest.Subject {
					engine := memory.New(memory.Options{})
					t.Cleanup(func() { _ = engine.Close() })
					planted := tc.plant(engine)
					return storetest.Subject{
						Engine: planted,
						Restart: func() store.Engine {
							engine.Crash()
							engine.Restart()
							return planted
						},
						Compact:    engine.Compact,
						Restore:    func(from io.Reader) (store.Engine, error) { return planted, engine.Restore(from) },
						Fill:       engine.Fill,
						ReachQuota: engine.ReachQuota,
						Other:      func() store.Engine { return engine.Open(memory.Hooks{}) },
					}
				}
				var failed []string
				ran := 0
				for result := range suite.Run(t.Context(), storetest.Cases(), open) {
					ran++
					if result.Name == "commit/contended" && tc.want != nil {
						continue // its clients may or may not conflict
					}
					if result.Outcome != suite.Passed {
						failed = append(failed, result.Name)
						t.Logf("%s %s after %v: %q", result.Name, result.Outcome, result.Duration, result.Messages)
					}
				}
				if want := len(storetest.Cases()); ran != want {
					t.Errorf("%d cases ran, want %d", ran, want)
				}
				if diff := cmp.Diff(tc.want, failed); diff != "" {
					t.Errorf("failed cases (-want +got):\n%s", diff)
				}
			})
		})
	}
}
