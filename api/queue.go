package api

import "time"

// Queue is what waits for placement in a domain, in the order in which the scheduler serves it.
type Queue struct {
	// Tasks is the number of tasks in line, of all clusters. Held tasks are not in line.
	Tasks int `json:"tasks"`
	// Entries are those of the clusters that the request is for and that the caller sees.
	Entries []QueueEntry `json:"entries"`
	// Revision is that of the state which the queue is of.
	Revision uint64 `json:"revision"`
}

// QueueEntry is tasks of one service, or of one step of a job, that are next to each other in the queue and wait for
// the same reason.
type QueueEntry struct {
	// Position is that of the first task, from 1. It is 0 for tasks that are held: they are not in line.
	Position int      `json:"position,omitempty"`
	Owner    OwnerRef `json:"owner"`
	Step     string   `json:"step,omitempty"`
	// Tasks is the number of tasks, and First the one that is placed first.
	Tasks    int    `json:"tasks"`
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
}
