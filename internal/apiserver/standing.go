package apiserver

import "github.com/berthd/berth/internal/logic/scheduler"

// standingFleet returns the fleet of the domain with all that stands on it. The value of devices is the leader's, or
// that of a leader that begins now.
func (l *look) standingFleet() *scheduler.Fleet {
	var values *scheduler.ValueModel
	if l.values != nil {
		values = l.values()
	}
	return l.Fleet(values)
}
