// Package discoverytest is the contract of package discovery as a suite that every driver passes: cases that run as
// tests and in programs.
package discoverytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/suite"
)

// Limit is the longest wait until others see a change.
const Limit = 10 * time.Second

// Seen is a registration as other programs see it.
type Seen struct {
	ID, Name, Address string
	Port              int
	Tags              []string
	// Meta has the metadata of the registration and those that the driver adds.
	Meta   map[string]string
	Health cluster.Health
	// Text is the text of the newest state.
	Text string
}

// Subject is a system with two owners.
type Subject struct {
	// Driver is the tested driver, and Other is one of another owner of the same system.
	Driver, Other discovery.Driver
	// See returns the registrations of a service that other programs see, ordered by ID.
	See func(ctx context.Context, service string) ([]Seen, error)
	// Restart starts the system again. It keeps its registrations.
	Restart func()
	// Lose removes all registrations, as a system does that loses its data.
	Lose func()
	// Tamper changes the tags of a registration, as another program may.
	Tamper func(ctx context.Context, id string) error
	// DropChecks removes the checks of a registration, as another program may. It is nil for a system whose checks
	// cannot be removed.
	DropChecks func(ctx context.Context, id string) error
}

// Cases returns the cases of the suite.
func Cases() []suite.Case[Subject] {
	return []suite.Case[Subject]{
		{Name: "register", Run: register},
		{Name: "replace", Run: replace},
		{Name: "report", Run: report},
		{Name: "deregister", Run: deregister},
		{Name: "foreign", Run: foreign},
		{Name: "restart", Run: restart},
		{Name: "lose", Run: lose},
		{Name: "tamper", Run: tamper},
		{Name: "contexts", Run: contexts},
		{Name: "together", Run: together},
	}
}

// healthy is the state of a task without a fault.
var healthy = discovery.State{Health: cluster.HealthHealthy, Text: "healthy"}

// sample returns a registration with everything.
func sample(id string) *discovery.Registration {
	return &discovery.Registration{
		ID: id, Name: "suite-web", Address: "127.0.0.1", Port: 30412, Tags: []string{"v1", "blue"},
		Meta: map[string]string{"team": "shop", "task": "default.web.1.0"},
	}
}

// mustRegister registers r as healthy.
func mustRegister(t suite.T, d discovery.Driver, r *discovery.Registration) {
	t.Helper()
	if err := d.Register(suite.Context(t, Limit), r, healthy); err != nil {
		t.Fatalf("register %s: %v", r.ID, err)
	}
}

// held returns the digests that the driver lists, by ID.
func held(t suite.T, d discovery.Driver) map[string]string {
	t.Helper()
	list, err := d.List(suite.Context(t, Limit))
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	if !slices.IsSortedFunc(list, func(a, b discovery.Held) int { return compare(a.ID, b.ID) }) {
		t.Errorf("the list is not ordered: %+v", list)
	}
	all := map[string]string{}
	for _, h := range list {
		all[h.ID] = h.Digest
	}
	return all
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sees waits until others see exactly what is wanted of the service, without the metadata of the driver and without
// texts that are not wanted.
func sees(t suite.T, s Subject, service string, want ...Seen) {
	t.Helper()
	suite.Eventually(t, Limit, func() error {
		got, err := s.See(t.Context(), service)
		if err != nil {
			return err
		}
		if len(got) != len(want) {
			return fmt.Errorf("others see %+v, want %+v", got, want)
		}
		for i := range got {
			g, w := got[i], want[i]
			maps.DeleteFunc(g.Meta, func(k, _ string) bool { _, ok := w.Meta[k]; return !ok })
			if w.Text == "" {
				g.Text = ""
			}
			if fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) {
				return fmt.Errorf("others see %+v, want %+v", g, w)
			}
		}
		return nil
	})
}

// as returns how others should see a registration in a state. The text of a healthy one does not matter.
func as(r *discovery.Registration, s discovery.State) Seen {
	seen := Seen{r.ID, r.Name, r.Address, r.Port, r.Tags, r.Meta, s.Health, s.Text}
	if s.Health == cluster.HealthHealthy {
		seen.Text = ""
	}
	return seen
}

// register checks that others see a registration whole, and that the owner finds it as it was registered.
func register(t suite.T, s Subject) {
	if _, err := s.Driver.Probe(suite.Context(t, Limit)); err != nil {
		t.Fatalf("probe: %v", err)
	}
	if s.Driver.Name() == "" || s.Driver.ReportInterval() <= 0 {
		t.Errorf("the driver has the name %q and the interval %v", s.Driver.Name(), s.Driver.ReportInterval())
	}
	r := sample("suite-1")
	mustRegister(t, s.Driver, r)
	sees(t, s, r.Name, as(r, healthy))
	if got := held(t, s.Driver); len(got) != 1 || got[r.ID] != r.Digest() {
		t.Errorf("the driver holds %v, want %s with the digest %s", got, r.ID, r.Digest())
	}
	bare := &discovery.Registration{ID: "suite-2", Name: "suite-bare", Address: "127.0.0.1"}
	mustRegister(t, s.Driver, bare)
	sees(t, s, bare.Name, as(bare, healthy))
	if got := held(t, s.Driver); got[bare.ID] != bare.Digest() {
		t.Errorf("the driver holds %v, want %s with the digest %s", got, bare.ID, bare.Digest())
	}
}

// replace registers twice: a change replaces every part.
func replace(t suite.T, s Subject) {
	r := sample("suite-1")
	mustRegister(t, s.Driver, r)
	mustRegister(t, s.Driver, r)
	sees(t, s, r.Name, as(r, healthy))
	changed := sample("suite-1")
	changed.Address, changed.Port, changed.Tags, changed.Meta = "127.0.0.2", 30413, []string{"v2"},
		map[string]string{"task": "default.web.1.1"}
	mustRegister(t, s.Driver, changed)
	sees(t, s, r.Name, as(changed, healthy))
	if got := held(t, s.Driver); len(got) != 1 || got[r.ID] != changed.Digest() {
		t.Errorf("the driver holds %v, want %s", got, changed.Digest())
	}
	if seen, err := s.See(t.Context(), r.Name); err != nil || len(seen) != 1 || seen[0].Meta["team"] != "" {
		t.Errorf("others see %+v, error %v, want the old metadata removed", seen, err)
	}
}

// report changes the health. Others see each health with its text.
func report(t suite.T, s Subject) {
	r := sample("suite-1")
	mustRegister(t, s.Driver, r)
	for _, state := range []discovery.State{
		{Health: cluster.HealthWarning, Text: "check ready failed once"},
		{Health: cluster.HealthFailing, Text: "check ready failed 3 times in a row"},
		healthy, healthy,
	} {
		if err := s.Driver.Report(suite.Context(t, Limit), r.ID, state); err != nil {
			t.Fatalf("report %s: %v", state.Health, err)
		}
		sees(t, s, r.Name, as(r, state))
	}
	if got := held(t, s.Driver); got[r.ID] != r.Digest() {
		t.Errorf("the driver holds %v after reports, want %s", got, r.Digest())
	}
	if err := s.Driver.Report(t.Context(), "suite-none", healthy); !errors.Is(err, discovery.ErrNotRegistered) {
		t.Errorf("a report about an unknown registration: got %v, want ErrNotRegistered", err)
	}
}

// deregister removes one registration, twice, and no other one.
func deregister(t suite.T, s Subject) {
	r, other := sample("suite-1"), sample("suite-2")
	mustRegister(t, s.Driver, r)
	mustRegister(t, s.Driver, other)
	for range 2 {
		if err := s.Driver.Deregister(suite.Context(t, Limit), r.ID); err != nil {
			t.Fatalf("deregister: %v", err)
		}
		sees(t, s, r.Name, as(other, healthy))
	}
	if err := s.Driver.Report(t.Context(), r.ID, healthy); !errors.Is(err, discovery.ErrNotRegistered) {
		t.Errorf("a report after the end: got %v, want ErrNotRegistered", err)
	}
	mustRegister(t, s.Driver, r)
	sees(t, s, r.Name, as(r, healthy), as(other, healthy))
}

// foreign tries to change the registration of another owner.
func foreign(t suite.T, s Subject) {
	r := sample("suite-1")
	mustRegister(t, s.Other, r)
	if got := held(t, s.Driver); len(got) != 0 {
		t.Errorf("the driver lists %v of another owner", got)
	}
	mine := sample("suite-1")
	mine.Port, mine.Tags = 1, nil
	down := discovery.State{Health: cluster.HealthFailing, Text: "x"}
	for name, err := range map[string]error{
		"register":   s.Driver.Register(t.Context(), mine, healthy),
		"deregister": s.Driver.Deregister(t.Context(), r.ID),
		"report":     s.Driver.Report(t.Context(), r.ID, down),
	} {
		if !errors.Is(err, discovery.ErrForeign) {
			t.Errorf("%s: got error %v, want ErrForeign", name, err)
		}
	}
	sees(t, s, r.Name, as(r, healthy))
	if got := held(t, s.Other); got[r.ID] != r.Digest() {
		t.Errorf("its owner holds %v, want %s", got, r.Digest())
	}
}

// restart restarts the system. The registrations stay as they are, and the same driver continues.
func restart(t suite.T, s Subject) {
	r := sample("suite-1")
	mustRegister(t, s.Driver, r)
	warning := discovery.State{Health: cluster.HealthWarning, Text: "check ready failed once"}
	if err := s.Driver.Report(t.Context(), r.ID, warning); err != nil {
		t.Fatalf("report: %v", err)
	}
	s.Restart()
	sees(t, s, r.Name, as(r, warning))
	suite.Eventually(t, Limit, func() error { return s.Driver.Report(t.Context(), r.ID, healthy) })
	sees(t, s, r.Name, as(r, healthy))
	if got := held(t, s.Driver); got[r.ID] != r.Digest() {
		t.Errorf("the driver holds %v after a restart, want %s", got, r.Digest())
	}
}

// lose removes everything. The owner notices, and registers again.
func lose(t suite.T, s Subject) {
	r := sample("suite-1")
	mustRegister(t, s.Driver, r)
	s.Lose()
	if got := held(t, s.Driver); len(got) != 0 {
		t.Errorf("the driver holds %v after the loss", got)
	}
	if err := s.Driver.Report(t.Context(), r.ID, healthy); !errors.Is(err, discovery.ErrNotRegistered) {
		t.Errorf("a report after the loss: got %v, want ErrNotRegistered", err)
	}
	mustRegister(t, s.Driver, r)
	sees(t, s, r.Name, as(r, healthy))
}

// tamper has another program change a registration. The owner notices, and repairs it.
func tamper(t suite.T, s Subject) {
	r := sample("suite-1")
	changes := map[string]func(context.Context, string) error{"the tags": s.Tamper}
	if s.DropChecks != nil {
		changes["the checks"] = s.DropChecks
	}
	for what, change := range changes {
		mustRegister(t, s.Driver, r)
		if err := change(t.Context(), r.ID); err != nil {
			t.Fatalf("change %s: %v", what, err)
		}
		if got, ok := held(t, s.Driver)[r.ID]; !ok || got == r.Digest() {
			t.Errorf("the driver does not notice that another program changed %s", what)
		}
		mustRegister(t, s.Driver, r)
		sees(t, s, r.Name, as(r, healthy))
		if got := held(t, s.Driver); got[r.ID] != r.Digest() {
			t.Errorf("the driver holds %v after the repair of %s, want %s", got, what, r.Digest())
		}
	}
}

// contexts makes each call with an ended context. No call has an effect.
func contexts(t suite.T, s Subject) {
	r := sample("suite-1")
	mustRegister(t, s.Driver, r)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, probe := s.Driver.Probe(ended)
	_, list := s.Driver.List(ended)
	down := discovery.State{Health: cluster.HealthFailing, Text: "x"}
	for name, err := range map[string]error{
		"probe": probe, "list": list, "register": s.Driver.Register(ended, sample("suite-2"), healthy),
		"report": s.Driver.Report(ended, r.ID, down), "deregister": s.Driver.Deregister(ended, r.ID),
	} {
		if err == nil {
			t.Errorf("%s with an ended context: got no error", name)
		}
	}
	sees(t, s, r.Name, as(r, healthy))
}

// together registers, reports and deregisters many registrations at the same time.
func together(t suite.T, s Subject) {
	const count = 20
	var all sync.WaitGroup
	errs := make([]error, count)
	for i := range count {
		all.Go(func() {
			r := sample(fmt.Sprintf("suite-%02d", i))
			errs[i] = errors.Join(s.Driver.Register(t.Context(), r, healthy),
				s.Driver.Report(t.Context(), r.ID, healthy))
			if i%2 == 0 {
				errs[i] = errors.Join(errs[i], s.Driver.Deregister(t.Context(), r.ID))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v", err)
	}
	var want []Seen
	for i := 1; i < count; i += 2 {
		want = append(want, as(sample(fmt.Sprintf("suite-%02d", i)), healthy))
	}
	sees(t, s, want[0].Name, want...)
}
