package cluster

import "cmp"

// QueueSettings is how tasks of jobs wait for room.
type QueueSettings struct {
	// Policy says when a task may start before one that is ahead of it. Default: easy.
	Policy QueuePolicy `json:"policy,omitempty"`
}

// QueuePolicy is the rule by which tasks of jobs start before waiting tasks that are ahead of them in the queue. No
// policy changes the order of the queue.
type QueuePolicy string

// Policies of a queue.
const (
	// QueueEASY lets a task start if that does not delay the tasks ahead of it that have a promise: it ends before by
	// its time limit, or leaves their room.
	QueueEASY QueuePolicy = "easy"
	// QueueFIFO lets no task start before one that is ahead and only lacks room.
	QueueFIFO QueuePolicy = "fifo"
	// QueueGreedy lets each task start that finds room. Tasks that need much room may wait for ever.
	QueueGreedy QueuePolicy = "greedy"
)

// DefaultQueuePolicy is the policy where neither the pool nor the cluster sets one.
const DefaultQueuePolicy = QueueEASY

// policy returns the policy, or "" if none is set.
func (q *QueueSettings) policy() QueuePolicy {
	if q == nil {
		return ""
	}
	return q.Policy
}

func (q *QueueSettings) validate(c check) {
	if p := q.policy(); p != "" {
		oneOf(c.at("policy"), p)
	}
}

// QueuePolicyOf returns the policy for tasks of a cluster that name a pool: that of the pool, else that of the cluster,
// else the default. Each may be nil.
func QueuePolicyOf(p *Pool, c *Cluster) QueuePolicy {
	var own, shared QueuePolicy
	if p != nil {
		own = p.Queue.policy()
	}
	if c != nil {
		shared = c.Queue.policy()
	}
	return cmp.Or(own, shared, DefaultQueuePolicy)
}

// Values returns all policies.
func (QueuePolicy) Values() []QueuePolicy { return []QueuePolicy{QueueEASY, QueueFIFO, QueueGreedy} }
