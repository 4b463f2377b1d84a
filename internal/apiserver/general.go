package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/version"
)

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	v := version.Current()
	return answer(w, http.StatusOK, api.Version{Version: v.Version, Commit: v.Commit, Date: v.CommitDate})
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := fmt.Fprintln(w, "ok")
	return err
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	state := api.Readiness{Ready: true, Parts: map[string]string{}}
	for name, err := range map[string]error{
		"tables": s.tablesReady(),
		"engine": s.probe.ask(r.Context(), s),
		"leader": s.leaderReady(),
	} {
		state.Parts[name] = "ok"
		if err != nil {
			state.Parts[name], state.Ready = err.Error(), false
		}
	}
	// What somebody should look at, and what keeps no server from doing its work.
	for name, err := range map[string]error{"store": s.storeReady(r.Context()), "recovery": s.recoveryReady()} {
		state.Parts[name] = "ok"
		if err != nil {
			state.Parts[name] = err.Error()
		}
	}
	// These need somebody's attention; requests are answered all the same.
	if s.cfg.Audit != nil {
		state.Parts["audit"] = healthText(s.cfg.Audit.Health())
	}
	if s.cfg.Backups != nil {
		state.Parts["snapshots"] = "ok"
		if s.cfg.Backups() != nil { // why, with paths, is for /v1/status
			state.Parts["snapshots"] = "the store is not copied as it should be"
		}
	}
	if s.cfg.Keeper != nil {
		state.Parts["certificate"] = healthText(s.cfg.Keeper.Health())
	}
	if !state.Ready {
		w.Header().Set("Retry-After", "1")
		return answer(w, http.StatusServiceUnavailable, state)
	}
	return answer(w, http.StatusOK, state)
}

func healthText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (s *Server) tablesReady() error {
	select {
	case <-s.cfg.Tables.Synced():
		return nil
	default:
		return errors.New("the tables have not yet read the store")
	}
}

func (s *Server) leaderReady() error {
	if l, ok := s.cfg.Tables.Snapshot().Leader(s.cfg.Domain); !ok || l.Value.Holder == "" {
		return errors.New("no server leads yet")
	}
	return nil
}

// storeReady tells of what the engine itself complains about; whether it takes writes is the probe's to find out.
// Everybody may read it: so paths, addresses and names are left to /v1/status.
func (s *Server) storeReady(ctx context.Context) error {
	engine := s.askEngine(ctx)
	if engine.healthErr != nil {
		return errors.New(problemOf(engine.healthErr).Detail)
	}
	if v := storeView(&engine); v != nil {
		switch {
		case !v.Quorum:
			return errors.New("the store has no quorum")
		case !v.Writable:
			return errors.New("the store takes no writes")
		case len(v.Alarms) > 0:
			return errors.New("alarms: " + strings.Join(v.Alarms, ", "))
		}
	}
	return nil
}

func (s *Server) recoveryReady() error {
	if e, ok := s.cfg.Tables.Snapshot().Recovery(s.cfg.Domain); ok && e.Value.State == cluster.RecoveryNeeded {
		return errors.New("the store went back and waits for the operator; /v1/recovery says why")
	}
	return nil
}

// probe asks whether the engine takes writes, at most once in a while however often it is asked itself.
type probe struct {
	mu     sync.Mutex
	at     time.Time
	result error
}

const (
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second
)

func (p *probe) ask(ctx context.Context, s *Server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeEvery {
		return p.result
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	// Outside of the prefix, so that the tables do not see it.
	key := strings.TrimSuffix(string(s.cfg.Prefix), "/") + "-probe/write"
	_, err := s.cfg.Engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: []byte("{}")}}}})
	p.at, p.result = time.Now(), nil
	if err != nil {
		p.result = errors.New(problemOf(err).Detail)
	}
	return p.result
}
