package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
)

// HealthAPI reports whether the process is up and whether the server can do its work.
type HealthAPI struct {
	Reads   *snapshot.Reader
	Engine  *EngineState
	Storage store.Engine
	Prefix  store.Prefix
	Audit   audit.Sink
	Backups func() error // the fault of the scheduled backups; nil without backups
	Keeper  *pki.Keeper
	probe   probe
}

func (a *HealthAPI) live(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := fmt.Fprintln(w, "ok")
	return err
}

func (a *HealthAPI) ready(w http.ResponseWriter, r *http.Request) error {
	state := api.Readiness{Ready: true, Parts: map[string]string{}}
	for name, err := range map[string]error{
		"tables": a.TablesReady(),
		"engine": a.probe.ask(r.Context(), a),
		"leader": a.leaderReady(),
	} {
		state.Parts[name] = "ok"
		if err != nil {
			state.Parts[name], state.Ready = err.Error(), false
		}
	}
	// Warnings that keep no server from its work.
	for name, err := range map[string]error{"store": a.storeReady(r.Context()), "recovery": a.recoveryReady()} {
		state.Parts[name] = "ok"
		if err != nil {
			state.Parts[name] = err.Error()
		}
	}
	// Faults for the operator; requests are answered all the same.
	if a.Audit != nil {
		state.Parts["audit"] = healthText(a.Audit.Health())
	}
	if a.Backups != nil {
		state.Parts["snapshots"] = "ok"
		if a.Backups() != nil { // the reason has paths: /v1/status shows it
			state.Parts["snapshots"] = "the store is not copied as it should be"
		}
	}
	if a.Keeper != nil {
		state.Parts["certificate"] = healthText(a.Keeper.Health())
	}
	if !state.Ready {
		w.Header().Set("Retry-After", "1")
		return respond.JSON(w, http.StatusServiceUnavailable, state)
	}
	return respond.JSON(w, http.StatusOK, state)
}

func healthText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// TablesReady returns an error until the tables have read the store.
func (a *HealthAPI) TablesReady() error {
	select {
	case <-a.Reads.Tables.Synced():
		return nil
	default:
		return errors.New("the tables have not yet read the store")
	}
}

func (a *HealthAPI) leaderReady() error {
	if l, ok := a.Reads.Tables.Snapshot().Leader(cluster.DefaultDomain); !ok || l.Value.Holder == "" {
		return errors.New("no server leads yet")
	}
	return nil
}

// storeReady returns the engine's own complaints; the probe finds out whether the engine accepts writes. Everyone may
// read the answer, so paths, addresses and names are left to /v1/status.
func (a *HealthAPI) storeReady(ctx context.Context) error {
	engine := a.Engine.Ask(ctx)
	if engine.HealthErr != nil {
		return errors.New(respond.ProblemOf(engine.HealthErr).Detail)
	}
	if v := StoreView(&engine); v != nil {
		switch {
		case !v.Quorum:
			return errors.New("the store answers no consistent reads; /v1/status says why")
		case !v.Writable:
			return errors.New("the store takes no writes")
		case len(v.Alarms) > 0:
			return errors.New("alarms: " + strings.Join(v.Alarms, ", "))
		}
	}
	return nil
}

func (a *HealthAPI) recoveryReady() error {
	snap := a.Reads.Tables.Snapshot()
	if e, ok := snap.Recovery(domainOf(snap)); ok && e.Value.State == cluster.RecoveryNeeded {
		return errors.New("the store went back and waits for the operator; /v1/recovery says why")
	}
	return nil
}

// probe finds out whether the engine accepts writes, at most once per interval for any number of requests.
type probe struct {
	mu     sync.Mutex
	at     time.Time
	result error
}

const (
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second
)

func (p *probe) ask(ctx context.Context, a *HealthAPI) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeEvery {
		return p.result
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	// The key is outside of the prefix, so that the tables do not see it.
	key := strings.TrimSuffix(string(a.Prefix), "/") + "-probe/write"
	_, err := a.Storage.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: []byte("{}")}}}})
	p.at, p.result = time.Now(), nil
	if _, denied := errors.AsType[*store.DeniedError](err); denied { // the remedy has paths
		p.result = errors.New("the store denies this server; /v1/status says why")
	} else if err != nil {
		p.result = errors.New(respond.ProblemOf(err).Detail)
	}
	return p.result
}

// Routes returns the operations of health.
func (a *HealthAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/livez", Name: "live", Summary: "Whether the process is up.", Open: true,
			Stream: "text/plain", Serve: a.live,
		},
		{
			Method: "GET", Path: "/readyz", Name: "ready", Summary: "Whether the server can do its work, part by part.",
			Open: true, Reply: reflect.TypeFor[api.Readiness](), Serve: a.ready,
		},
	}
}
