package api

import "time"

// Limits of the number of entries of a queue. It may have a million, which take seconds and gigabytes.
const (
	// DefaultQueueLimit is the limit of a request that names none.
	DefaultQueueLimit = 1000
	// MaxQueueLimit is the largest that a request may name.
	MaxQueueLimit = 10_000
)

// Queue is what waits for placement in a domain, in the order in which the scheduler serves it.
type Queue struct {
	// Tasks is the number of tasks in line, of all clusters. Held tasks are not in line.
	Tasks int `json:"tasks"`
	// Entries are the first ones of the clusters, services and jobs that the request is for and that the caller sees.
	Entries []QueueEntry `json:"entries"`
	// LeftOut is the number of tasks, those of the entries not counted, that the request is for and that the caller
	// sees. They come after the entries, and the limit of the request left them out.
	LeftOut int `json:"left_out,omitempty"`
	// Shares are what the jobs of the users hold who have tasks in fair queues, in the order in which these are served.
	Shares []QueueShare `json:"shares,omitempty"`
	// Revision is that of the state which the queue is of.
	Revision uint64 `json:"revision"`
}

// QueueShare is what the jobs of a user hold, who has tasks in a fair queue.
type QueueShare struct {
	Cluster string `json:"cluster"`
	// User is the name of a token, or how the user was identified; "cron/NAME" for jobs of a cron.
	User   string `json:"user"`
	Weight int    `json:"weight"` // of the cluster
	// OfCluster and OfUser are the dominant shares of the jobs of the cluster and of the user: the largest of their
	// parts of the CPU, memory, disk and devices of all nodes. 1 is all of one of these.
	OfCluster float64 `json:"of_cluster"`
	OfUser    float64 `json:"of_user"`
	Waiting   int     `json:"waiting"` // the user's tasks in fair queues, held ones too
}

// QueueEntry is tasks of one service, or of one step of a job, that are next to each other in the queue and wait for
// the same reason.
type QueueEntry struct {
	// Position is that of the first task, from 1. It is 0 for tasks that are held: they are not in line.
	Position int `json:"position,omitempty"`
	// Fair says that the tasks are in a fair queue: those of other entries take turns with them.
	Fair  bool     `json:"fair,omitempty"`
	Owner OwnerRef `json:"owner"`
	Step  string   `json:"step,omitempty"`
	// Steps, unless 0, says that the tasks are of so many steps of a job, which wait for various others. Step,
	// First and Message are those of the first.
	Steps int `json:"steps,omitempty"`
	// Tasks is the number of tasks, and First the one that is placed first.
	Tasks int `json:"tasks"`
	// User requested the job: see QueueShare.User.
	User     string `json:"user,omitempty"`
	First    TaskID `json:"first"`
	Priority int    `json:"priority"`
	// Since is when the first task began to wait.
	Since time.Time `json:"since,omitzero"`
	// Reason is why the tasks wait, and Message says it in a sentence. Both are empty until the leader has tried to
	// place the tasks.
	Reason  ReasonCode `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	// Promise, unless nil, is the room that will be free for the first task.
	Promise *Promise `json:"promise,omitempty"`
	// Expected, unless nil, is when the first task probably starts. Tasks of jobs that wait for room have it, up to
	// about the 2,000th request in line, except in queues with the policies fair and sjbf. ExpectedLast is the same for
	// the last task of several.
	Expected     *Expected `json:"expected,omitempty"`
	ExpectedLast *Expected `json:"expected_last,omitempty"`
}

// Expected is a forecast of the start of a waiting task of a job. It is some seconds old at most, and follows from the
// run times of similar tasks and the arrivals of the last days.
type Expected struct {
	// From and To hold the start with a probability of 90 %. To is zero if it is later than what was simulated.
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
	// Median is as likely too early as too late. It is zero if it is later than what was simulated.
	Median time.Time `json:"median,omitzero"`
	// Nodes are where the room for the task probably becomes free: one node, or the few of which it is one or another,
	// the likeliest first. They are empty if that is not known, if the task has a promise, and for tokens that are
	// limited to clusters. Gang says that the task belongs to a gang: each of the nodes has tasks of it.
	Nodes []string `json:"nodes,omitempty"`
	Gang  bool     `json:"gang,omitempty"`
}
