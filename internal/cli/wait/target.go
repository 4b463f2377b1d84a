package wait

import (
	"fmt"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// Target is an object to wait for, and what is known of it. Waiter.Wait waits for services and jobs as a command left
// them, and `berth wait` for any object in a state.
type Target struct {
	Name session.Name
	// until is the state to wait for, or "" for a service or job that the command has changed.
	until    string
	Revision uint64 // of the write; older reads are ignored
	// MinGeneration is the lowest generation to wait for, after writes whose reply has no revision.
	MinGeneration uint64
	service       *api.ServiceView
	job           *api.JobView
	id            cluster.TaskID // the complete id of a task
	existed       bool           // a read found it
	// trouble, unless nil, replaces the troubles from the server.
	trouble *api.Trouble
	// generation is the service's generation to wait for, 0 before the first read. rollout is its rollout, nil after
	// its end and for a server without rollouts.
	generation uint64
	rollout    *api.RolloutView
	// tail are the last output lines of the unhealthy task tailTask, read at tailReadAt. A rollback deletes that task.
	tail       []string
	tailTask   cluster.TaskID
	tailReadAt time.Time

	// preparing describes the preparing tasks, read at preparingReadAt. preparingSuffix is the end of Line that shows
	// it.
	preparing, preparingSuffix string
	preparingReadAt            time.Time

	Line         string    // the newest state, for people
	Brief        string    // Line without values that change often
	maxHealthy   int       // the maximum number of healthy new tasks so far
	ProgressAt   time.Time // when maxHealthy last grew
	failingSince time.Time // since when the server reports the service as failing
	done         bool
	Failure      string // why the wait ended without success
	notice       string // the next step of a user after a success
	Watch        bool   // wait until the rollout ends, even while it needs a user
	// Promoted says that the user has just promoted the canaries. Waiting canaries then do not end the wait.
	Promoted bool
}

func (t *Target) giveUp(why string) { t.done, t.Failure = true, why }

// setLine sets the state and the message that progress shows.
func (t *Target) setLine(state, message string) {
	t.Brief, t.Line = state, state
	if message != "" {
		t.Line = fmt.Sprintf("%-11s  %s", state, message)
	}
}
