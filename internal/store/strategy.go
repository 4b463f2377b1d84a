package store

import "github.com/berthd/berth/internal/cluster"

// Strategy returns the strategy for tasks of a cluster with a placement. The placement's own strategy takes precedence
// over the strategy of its pool, and the pool's over the cluster's. It is "" if none is set.
func (s *Snapshot) Strategy(domain, name string, p *cluster.Placement) cluster.Strategy {
	if p.Strategy != "" {
		return p.Strategy
	}
	if p.Pool != "" {
		if d, ok := s.Domain(domain); ok {
			if own := d.Value.Pool(p.Pool).Strategy; own != "" {
				return own
			}
		}
	}
	if c, ok := s.Cluster(name); ok {
		return c.Value.Strategy
	}
	return ""
}
