package wait

import (
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// Target is a service or job that run waits for.
type Target struct {
	Name     session.Name
	Revision uint64 // of the write; what is read at an earlier one is not about it
	// Least is the generation that a service has at the least, for writes that tell no revision.
	MinGeneration uint64
	service       *api.ServiceView
	job           *api.JobView
	// generation is the service's that is waited for, 0 before it is known, and rollout where it stands; nil
	// for a server that knows of no rollouts, and for one that ended.
	generation uint64
	rollout    *api.RolloutView
	// tail are the last lines of the task tailOf of that generation, which was not well at tailAt: a rollback takes it
	// away.
	tail       []string
	tailTask   cluster.TaskID
	tailReadAt time.Time

	// preparing is what tasks do that are being prepared, asked at preparedAt, and added what the line ends with for
	// it.
	preparing, preparingSuffix string
	preparingReadAt            time.Time

	Line         string    // the newest that is known of it, for people
	Brief        string    // the same without what changes often
	maxHealthy   int       // the most healthy new tasks that were seen
	ProgressAt   time.Time // when that last grew
	failingSince time.Time // since when the server calls it failing
	done         bool
	Failure      string // why it is done without being well
	notice       string // what is to be done next although it is done
	Watch        bool   // it is looked at until the rollout ends, whoever has to do something for that
	// Promoted says that canaries are no end: the user has just promoted them.
	Promoted bool
}

func (t *Target) giveUp(why string) { t.done, t.Failure = true, why }
