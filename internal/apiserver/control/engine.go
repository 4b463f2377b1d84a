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

// Members are the members of a store engine that runs in Berth's servers, a part of store.Membership. Safe for
// concurrent use.
type Members interface {
	// Members returns all members.
	Members(ctx context.Context) ([]store.Member, error)
	// Promote gives a learner its vote; a voter is no error. It returns store.ErrNotInSync while the learner lags,
	// store.ErrMember for an unknown id.
	Promote(ctx context.Context, id string) error
	// Remove removes a member; an unknown id is no error. It may refuse with store.ErrLosesQuorum.
	Remove(ctx context.Context, id string) error
}

// Health reports the state of the disk, the database and the quorum of a store engine, within a few seconds.
type Health interface {
	Health(ctx context.Context) (store.EngineHealth, error)
}

// Reach is the state of the connection to another server.
type Reach struct {
	// Reached reports whether the server answered last. For is how long that has been so.
	Reached bool
	For     time.Duration
	// Problem is a sentence, empty where Reached.
	Problem string
}

const (
	// engineStateAge is how long an answer of the engine about itself is used again.
	engineStateAge = time.Second
	// engineStateTimeout bounds a question to the engine.
	engineStateTimeout = 5 * time.Second
)

// EngineState asks the engine for its state, at most once in engineStateAge. Safe for concurrent use.
type EngineState struct {
	Source Members // nil if the engine runs elsewhere
	Disk   Health  // nil if nothing reports the health; then Source is nil too

	mu      sync.Mutex
	at      time.Time
	members []store.Member
	health  store.EngineHealth
	// Each part has an error of its own: a store without a quorum still knows its disk.
	membersErr, healthErr error
}

// EngineAnswer is the engine's state at one time. Its members are known if they run in the servers, its health if the
// engine was asked.
type EngineAnswer struct {
	known, Asked          bool
	members               []store.Member
	health                store.EngineHealth
	membersErr, HealthErr error
}

// Ask returns the engine's state, at most one second old.
func (e *EngineState) Ask(ctx context.Context) EngineAnswer {
	members, health := e.Source, e.Disk
	if health == nil {
		return EngineAnswer{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() || time.Since(e.at) >= engineStateAge {
		// All callers share the answer, so the end of one request must not cancel it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineStateTimeout)
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

// Changed makes the next Ask ask the engine.
func (e *EngineState) Changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = time.Time{}
}

// member returns the member with the engine's id.
func (a *EngineAnswer) member(id string) *store.Member {
	for i := range a.members {
		if id != "" && a.members[i].ID == id {
			return &a.members[i]
		}
	}
	return nil
}

// Votes counts the voting members and the healthy ones among them, without the named one.
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

// Quorum returns how many of the voters must agree.
func Quorum(voters int) int { return voters/2 + 1 }

// StoreView shows the state of the engine's disk; nil if it is not known.
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
