// Package control holds the operations of the control plane: its servers, its store, its domain and its health.
package control

import (
	"context"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Members are the members of a store engine that runs in Berth's servers; etcd.Engine is one. Every call may be
// made concurrently.
type Members interface {
	// Members returns all of them.
	Members(ctx context.Context) ([]store.Member, error)
	// Promote gives a learner its vote; one that has it is no error. It returns store.ErrNotInSync while the learner
	// lags, store.ErrMember for an unknown id.
	Promote(ctx context.Context, id string) error
	// Remove takes a member out; an unknown id is no error. It may refuse with store.ErrLosesQuorum.
	Remove(ctx context.Context, id string) error
	Health
}

// Health tells how the disk, the database and the quorum of a store engine are, within a few seconds.
type Health interface {
	Health(ctx context.Context) (store.EngineHealth, error)
}

// Reach is how the talk of this server with another one goes.
type Reach struct {
	// Reached says that it answered last, and For how long that has been so, or not.
	Reached bool
	For     time.Duration
	// Problem is a sentence, empty where Reached.
	Problem string
}

const (
	// membersFresh is how long an answer of the engine about itself counts, however many ask.
	membersFresh = time.Second
	// membersWait bounds the asking.
	membersWait = 5 * time.Second
)

// EngineState asks the engine how it is, at most once in membersFresh. Safe for concurrent use.
type EngineState struct {
	Source Members // nil where the engine runs elsewhere
	Disk   Health  // nil where the members tell their health, or nobody does

	mu      sync.Mutex
	at      time.Time
	members []store.Member
	health  store.EngineHealth
	// Each part has an error of its own: a store without a quorum still knows its disk.
	membersErr, healthErr error
}

// EngineAnswer is one look at the engine. Its members are known where they run in the servers, its health where it was
// asked.
type EngineAnswer struct {
	known, Asked          bool
	members               []store.Member
	health                store.EngineHealth
	membersErr, HealthErr error
}

// Ask returns what the engine says of itself, which may be a second old.
func (e *EngineState) Ask(ctx context.Context) EngineAnswer {
	members, health := e.Source, e.Disk
	if health == nil {
		health = members
	}
	if health == nil {
		return EngineAnswer{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() || time.Since(e.at) >= membersFresh {
		// The answer is for all who ask, so that the end of one request does not end it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), membersWait)
		defer cancel()
		var both sync.WaitGroup
		if members != nil {
			both.Go(func() { e.members, e.membersErr = members.Members(ctx) })
		}
		both.Go(func() { e.health, e.healthErr = health.Health(ctx) })
		both.Wait()
		e.at = time.Now()
	}
	return EngineAnswer{members != nil, true, e.members, e.health, e.membersErr, e.healthErr}
}

// Changed has the next question asked anew.
func (e *EngineState) Changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = time.Time{}
}

// member returns the member of an id of the engine's.
func (a *EngineAnswer) member(id string) *store.Member {
	for i := range a.members {
		if id != "" && a.members[i].ID == id {
			return &a.members[i]
		}
	}
	return nil
}

// Votes counts the members that have a vote, and those of them that are healthy, without one of them.
func (a *EngineAnswer) Votes(without string) (all, healthy int) {
	for i := range a.members {
		if m := &a.members[i]; !m.Learner && m.ID != without {
			all++
			if m.Healthy {
				healthy++
			}
		}
	}
	return all, healthy
}

// Quorum returns how many of the voters have to agree.
func Quorum(voters int) int { return voters/2 + 1 }

// StoreView shows what the engine says of its disk; nil where it cannot be asked or did not say.
func StoreView(engine *EngineAnswer) *api.StoreView {
	if !engine.Asked || engine.HealthErr != nil {
		return nil
	}
	h := &engine.health
	v := &api.StoreView{
		Size: cluster.Bytes(h.Size), Used: cluster.Bytes(h.InUse), Quota: cluster.Bytes(h.Quota),
		Free: cluster.Bytes(h.DiskFree), LowWater: cluster.Bytes(h.LowWater),
		Writable: h.Writes, Reason: h.Reason, Quorum: h.Quorum, Engine: h.Version,
	}
	for _, a := range h.Alarms {
		text := a.Name
		if a.Member != "" {
			text += " of member " + a.Member
		}
		v.Alarms = append(v.Alarms, text)
	}
	return v
}
