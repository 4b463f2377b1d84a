package cluster

import "cmp"

// QueueSettings is how tasks of jobs wait for room.
type QueueSettings struct {
	// Policy says when a task may start before one that is ahead of it. Default: easy.
	Policy QueuePolicy `json:"policy,omitempty"`
	// Weight is 1 to 1000. Default 1. In fair queues, the jobs of a cluster with 2 get twice as much as those of one
	// with 1. Pools have none.
	Weight int `json:"weight,omitempty"`
}

// MaxQueueWeight is the highest weight of a cluster in a fair queue.
const MaxQueueWeight = 1000

// QueuePolicy is the rule by which tasks of jobs start before others that wait.
type QueuePolicy string

// Policies of a queue.
const (
	// QueueEASY lets a task start if that does not delay the tasks ahead of it that have a promise: it ends before by
	// its time limit, or leaves their room.
	QueueEASY QueuePolicy = "easy"
	// QueueFair is QueueEASY in another order: the next task is of the cluster whose jobs hold the least for its
	// weight, and there of the user whose jobs hold the least.
	QueueFair QueuePolicy = "fair"
	// QueueFIFO lets no task start before one that is ahead and only lacks room.
	QueueFIFO QueuePolicy = "fifo"
	// QueueGreedy lets each task start that finds room. Tasks that need much room may wait for ever.
	QueueGreedy QueuePolicy = "greedy"
	// QueueSJBF is QueueEASY in another order: of tasks of one priority, the next is the one that has waited longest in
	// proportion to its time limit. So short tasks come before long ones, until these have waited for very long.
	QueueSJBF QueuePolicy = "sjbf"
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

// weight returns the weight; q may be nil.
func (q *QueueSettings) weight() int {
	if q == nil || q.Weight == 0 {
		return 1
	}
	return q.Weight
}

func (q *QueueSettings) validate(c check) {
	if p := q.policy(); p != "" {
		oneOf(c.at("policy"), p)
	}
	if q != nil {
		c.at("weight").must(q.Weight >= 0 && q.Weight <= MaxQueueWeight, "must be between 1 and %d",
			MaxQueueWeight)
	}
}

// QueueWeight returns the weight of the cluster in a fair queue; c may be nil.
func (c *Cluster) QueueWeight() int {
	if c == nil {
		return 1
	}
	return c.Queue.weight()
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
func (QueuePolicy) Values() []QueuePolicy {
	return []QueuePolicy{QueueEASY, QueueFair, QueueFIFO, QueueGreedy, QueueSJBF}
}
