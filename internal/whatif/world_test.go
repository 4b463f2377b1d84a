package whatif_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/whatif"
)

var midnight = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// objects reads manifests as the command line does.
func objects(t testing.TB, text string) []api.Object {
	t.Helper()
	read, err := manifest.Read(strings.NewReader(text), "-")
	if err != nil {
		t.Fatal(err)
	}
	var out []api.Object
	for _, o := range read {
		spec, err := json.Marshal(o.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, api.Object{Kind: o.Kind, Spec: spec})
	}
	return out
}

func logger() *slog.Logger {
	if os.Getenv("BERTH_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// empty returns a branch of an empty store.
func empty(t *testing.T) *store.Branch {
	t.Helper()
	b, err := store.LoadBranch(nil, 1, store.DefaultPrefix, logger())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// domain returns a World after the given changes.
func domain(t *testing.T, changes ...api.SimulateChange) *whatif.World {
	t.Helper()
	w, err := whatif.New(t.Context(), whatif.Config{Branch: empty(t), Now: midnight, Log: logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for i := range changes {
		applyChange(t, w, changes[i])
	}
	return w
}

// applyChange makes one change and waits until the World is at rest.
func applyChange(t *testing.T, w *whatif.World, c api.SimulateChange) {
	t.Helper()
	if err := w.Apply(t.Context(), &c); err != nil {
		t.Fatalf("%s: %v", whatif.Describe(&c), err)
	}
	_, settled, err := w.Settle(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", whatif.Describe(&c), err)
	}
	if !settled {
		t.Fatalf("%s: it did not converge", whatif.Describe(&c))
	}
}

// branch returns a branch of a World's store, like a server's branch of its store.
func branch(w *whatif.World) *store.Branch {
	return store.NewBranch(w.Snapshot(), store.DefaultPrefix, logger())
}

// simulate returns the effect of changes on a World's domain.
func simulate(t *testing.T, w *whatif.World, changes ...api.SimulateChange) *api.Simulation {
	t.Helper()
	sim, err := whatif.Run(t.Context(), whatif.Config{Branch: branch(w), Now: w.Now(), Log: logger()},
		api.SimulateRequest{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

const web = `
kind: TaskDefinition
name: web
version: 1
containers:
  - name: web
    image: web:1
    resources: {cpu: 1, memory: 1GiB}
---
kind: Service
name: web
definition: web@1
count: 4
`
