package wait

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// Target is an object to wait for, and what is known of it. Waiter.Wait waits until a service or job is as the command
// wants it, or until any object is in a state.
type Target struct {
	Name     session.Name
	until    string // the state to wait for, or "" for a service or job that the command has changed
	Revision uint64 // of the write; older reads are ignored
	// MinGeneration is the lowest generation of a service to wait for: that of the write, or the one before it if the
	// write begins no rollout or does not tell. A rollback of a lower one has another cause than the write.
	MinGeneration uint64
	Watch         bool // wait until the rollout ends, even while it needs a user
	// Stop waits until nothing of a service runs, or until a job has ended.
	Stop bool
	// Unchanged says that the command did not change the object.
	Unchanged bool
	// Promoted says that the user has just promoted the canaries. Waiting canaries then do not end the wait.
	Promoted bool

	Line  string // the newest state, for people
	Brief string // Line without values that change often
	outcome
	history

	id cluster.TaskID // the complete id of a task
	// findTask finds a task by its name before its id is known.
	findTask func(ctx context.Context, c *client.Client, text string) (api.TaskView, error)
	service  *api.ServiceView
	job      *api.JobView
	// generation is the service's generation to wait for, 0 before the first read. rollout is its rollout, nil after
	// its end and for a server without rollouts.
	generation uint64
	rollout    *api.RolloutView
	// trouble, unless nil, replaces the troubles from the server.
	trouble *api.Trouble
}

// outcome is how the wait for a target ended.
type outcome struct {
	done    bool
	Failure string // why the wait ended without success
	// isPredicate says that Failure continues the name of the target. IsLate says that the time limit ended the wait.
	isPredicate, isLate bool
	notice              string // the next step of a user
}

// history is what earlier reads of a target found.
type history struct {
	existed      bool      // a read found the object
	maxHealthy   int       // the maximum number of healthy new tasks so far
	progressAt   time.Time // when maxHealthy last grew
	failingSince time.Time // since when the server reports the object as failing
	steady       steadiness
	tail         keptTail
	preparing    preparation
}

// keptTail is the last output lines of an unhealthy task. A rollback deletes the task.
type keptTail struct {
	lines  []string
	task   cluster.TaskID
	readAt time.Time
}

// preparation describes the preparing tasks. The suffix is the end of Target.Line that shows the text.
type preparation struct {
	text, suffix string
	readAt       time.Time
}

// giveUp ends the wait without success. The reason has a subject of its own: "its rollout of web@2 failed".
func (o *outcome) giveUp(why string) { o.done, o.Failure, o.isPredicate = true, why, false }

// giveUpAs ends the wait without success. The reason continues the name of the target: "was deleted".
func (o *outcome) giveUpAs(predicate string) {
	o.giveUp(predicate)
	o.isPredicate = true
}

// awaitsNeeds reports whether a service or job that the command has changed waits for what it needs.
func (t *Target) awaitsNeeds() bool {
	if t.until != "" || t.Stop {
		return false
	}
	return t.service != nil && t.service.Status.Unmet != "" || t.job != nil && t.job.Status.Unmet != ""
}

// needs returns the services and jobs that the target needs.
func (t *Target) needs() []cluster.OwnerRef {
	if t.service != nil {
		return cluster.NeededOwners(t.Name.Cluster, t.service.Needs)
	}
	return cluster.NeededOwners(t.Name.Cluster, t.job.Needs)
}

// goal returns the state that the command waits for.
func (t *Target) goal() string {
	switch {
	case t.until != "":
		return t.until
	case t.Stop:
		return "stopped"
	case t.Name.Kind == wording.KindJob:
		return untilDone
	}
	return untilHealthy
}

// failureText says in a sentence why the wait ended without success.
func (t *Target) failureText() string {
	if t.isPredicate {
		return t.Name.String() + " " + t.Failure
	}
	return t.Name.String() + ": " + t.Failure
}

// setLine sets the state and the message that progress shows.
func (t *Target) setLine(state, message string) {
	t.Brief, t.Line = state, state
	if message != "" {
		t.Line = fmt.Sprintf("%-11s  %s", state, message)
	}
}
