package cluster

// Pool holds the operator's settings of a pool of nodes: the record pool/<p>. The settings of a node name its pool
// (Host.Pool). A pool without a record has no settings; it exists while nodes name it. Writer: the user.
type Pool struct {
	Name string `json:"name"`
	// Strategy is for services and steps that name the pool and no strategy. Default: that of their cluster.
	Strategy Strategy `json:"strategy,omitempty"`
	// Queue is for jobs' tasks that name the pool. Without a policy, that of their cluster holds.
	Queue *QueueSettings `json:"queue,omitempty"`
}

// SetDefaults changes nothing: a field that is left out means the setting of the cluster.
func (*Pool) SetDefaults() {}

// Validate returns all faults of the pool as Faults, or nil.
func (p *Pool) Validate() error {
	k := newCheck()
	k.at("name").name(p.Name)
	k.at("strategy").strategy(p.Strategy)
	p.Queue.validate(k.at("queue"))
	k.at("queue").at("weight").must(p.Queue == nil || p.Queue.Weight == 0, "belongs into a cluster, not into a pool")
	return k.err()
}
