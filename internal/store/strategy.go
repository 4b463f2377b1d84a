package store

import "github.com/berthd/berth/internal/cluster"

// Strategy returns the strategy of tasks of a cluster that are placed so: that which the placement names, else that of
// the pool which it names, else that of the cluster, else none.
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
