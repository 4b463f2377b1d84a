package state

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Counters are the restarts and the kills for lack of memory of the attempts of one task that have left the node.
type Counters struct {
	// Task is the id of the task without its generation, as CounterKey returns it.
	Task string `json:"task"`
	// Generation, Attempt and UUID are those of the attempt that was counted last.
	Generation uint64 `json:"generation"`
	Attempt    int    `json:"attempt"`
	UUID       string `json:"uuid"`
	Restarts   int    `json:"restarts,omitempty"`
	OOMs       int    `json:"ooms,omitempty"`
	// At is when the last attempt was counted.
	At time.Time `json:"at"`
}

// CounterKey returns what the ids of a task have in common in all of its generations. It returns "" for text that is no
// id of a task.
func CounterKey(id cluster.TaskID) string {
	p, ok := id.Parts()
	if !ok {
		return ""
	}
	if p.Step == "" {
		return string(cluster.ServiceTask(p.Cluster, p.Owner, 0, p.Index))
	}
	return string(cluster.JobTask(p.Cluster, p.Owner, 0, p.Step, p.Index))
}

// QueueCounters writes the counters of a task soon.
func (s *Store) QueueCounters(c *Counters) { s.put(bucketCounters, c.Task, c, nil) }

// ForgetCounters deletes the counters of a task soon.
func (s *Store) ForgetCounters(task string) { s.put(bucketCounters, task, nil, nil) }
