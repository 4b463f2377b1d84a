package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// fakeSimulator answers with the functions of a test.
type fakeSimulator struct {
	check func(api.SimulateRequest) cluster.Faults
	make1 func(context.Context, api.SimulateRequest) (*api.Simulation, error)
}

func (f *fakeSimulator) Check(ask api.SimulateRequest) cluster.Faults {
	if f.check == nil {
		return nil
	}
	return f.check(ask)
}

func (f *fakeSimulator) Simulate(ctx context.Context, ask api.SimulateRequest) (*api.Simulation, error) {
	return f.make1(ctx, ask)
}

const scaleWeb = `{"changes": [{"scale": {"service": "web", "count": 3}}]}`

func TestASimulationIsAnswered(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Simulator = &fakeSimulator{make1: func(_ context.Context, ask api.SimulateRequest) (*api.Simulation, error) {
			return &api.Simulation{
				Fits:  ask.Changes[0].Scale.Count == 3,
				Steps: []api.SimulateStep{{Change: "scale web to 3"}},
			}, nil
		}}
	})
	before := w.tables.Snapshot().Revision()
	if v := read[api.Simulation](t, w.want(200, "POST", "/v1/simulate", scaleWeb)); !v.Fits || len(v.Steps) != 1 {
		t.Errorf("got %+v, want what the simulator returned", v)
	}
	if after := w.tables.Snapshot().Revision(); after != before {
		t.Errorf("the store went from revision %d to %d: a simulation wrote", before, after)
	}
	if got := newWorld(t).want(503, "POST", "/v1/simulate", scaleWeb).problem().Detail; !strings.Contains(got,
		"use another one") {
		t.Errorf("without a simulator: got %q", got)
	}
}

func TestASimulationAtATime(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	w := newWorld(t, func(c *Config) {
		c.Simulator = &fakeSimulator{make1: func(context.Context, api.SimulateRequest) (*api.Simulation, error) {
			begun <- true
			<-end
			return &api.Simulation{}, nil
		}}
	})
	first := make(chan reply)
	go func() { first <- w.call("POST", "/v1/simulate", scaleWeb) }()
	<-begun
	second := w.want(http.StatusTooManyRequests, "POST", "/v1/simulate", scaleWeb)
	if second.header.Get("Retry-After") == "" || !strings.Contains(second.problem().Detail, "one at a time") {
		t.Errorf("got %v %+v, want when to ask again and why", second.header, second.problem())
	}
	end <- true
	if r := <-first; r.status != http.StatusOK {
		t.Errorf("the first: got status %d, want 200", r.status)
	}
	go func() { <-begun; end <- true }()
	w.want(200, "POST", "/v1/simulate", scaleWeb)
}

func TestASimulationThatCannotBeMade(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		says   string
	}{
		"held":     {fmt.Errorf("%w: the store went back", planning.ErrSimulation), 409, "the store went back"},
		"too long": {fmt.Errorf("decide: %w", context.DeadlineExceeded), 503, "berth simulate --snapshot"},
		"refused":  {cluster.Faults{{Path: "changes[0]", Message: "there is no service web"}}, 422, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(cfg *Config) {
				cfg.Simulator = &fakeSimulator{
					make1: func(context.Context, api.SimulateRequest) (*api.Simulation, error) { return nil, c.err },
				}
			})
			r := w.want(c.status, "POST", "/v1/simulate", scaleWeb)
			if !strings.Contains(r.problem().Detail, c.says) {
				t.Errorf("got %+v, want it to say %q", r.problem(), c.says)
			}
			if c.status == 422 && r.faults() != "changes[0]: there is no service web" {
				t.Errorf("got the faults %s", r.faults())
			}
		})
	}
}

func TestAllFaultsOfASimulationAreReported(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Simulator = &fakeSimulator{check: func(api.SimulateRequest) cluster.Faults {
			return cluster.Faults{{Path: "changes[0].scale.count", Message: "is -1, want 0 to 100000"}}
		}}
	})
	r := w.want(422, "POST", "/v1/simulate", `{"changes": [{"scale": {"service": "web", "count": -1}},
		{"run": [{"kind": "Service", "spec": {"name": "web", "definition": "web@1"}}, {"kind": "Service", "spec": {"name": "_", "definition": "web@1", "count": -1}}]}]}`)
	for _, want := range []string{
		"changes[0].scale.count: is -1", "changes[1].run[1].name: ",
		"changes[1].run[1].count: ",
	} {
		if !strings.Contains(r.faults(), want) {
			t.Errorf("got the faults %s, want also %q", r.faults(), want)
		}
	}
	r = w.want(422, "POST", "/v1/simulate", `{"changes": [{"drain": "n1"}], "dry": true}`)
	if !strings.Contains(r.faults(), "changes[0].drain: ") || !strings.Contains(r.faults(), "dry: ") {
		t.Errorf("got the faults %s, want both unknown fields", r.faults())
	}
	w.want(400, "POST", "/v1/simulate", `{"changes": [`)
	w.want(413, "POST", "/v1/simulate", `{"changes": "`+strings.Repeat("x", strictjson.MaxBody)+`"}`)
}
