package sim

import (
	"sync"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// falseReports holds the false reports of a node's agent.
type falseReports struct {
	mu             sync.Mutex
	active         map[string]int // number of present events, by kind
	earlierReports []cluster.Observed
	wasFalse       bool // at least one false report was sent
}

// Kinds of lies.
const (
	lieForeign = "foreign" // it reports the end of attempts of other nodes
	lieRepeat  = "repeat"  // it repeats earlier reports
	lieGone    = "gone"    // it reports running attempts as gone
)

func (l *falseReports) addKind(kind string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active == nil {
		l.active = map[string]int{}
	}
	l.active[kind] += n
}

// wasEverFalse reports whether the node ever sent a false report.
func (l *falseReports) wasEverFalse() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wasFalse
}

// addTo adds false reports to an outgoing report.
func (l *falseReports) addTo(r *transport.Report, f *fleet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.earlierReports = append(l.earlierReports, r.Tasks...)
	if len(l.earlierReports) > 50 {
		l.earlierReports = l.earlierReports[len(l.earlierReports)-50:]
	}
	has := map[string]bool{}
	for i := range r.Tasks {
		has[r.Tasks[i].UUID] = true
	}
	add := func(o cluster.Observed) {
		if !has[o.UUID] {
			has[o.UUID] = true
			o.Node, o.Session, o.Seq = r.Node, r.Session, r.Seq
			r.Tasks = append(r.Tasks, o)
			l.wasFalse = true
		}
	}
	d := f.random.roll(r.Node + ":lie")
	if l.active[lieRepeat] > 0 && len(l.earlierReports) > 0 {
		add(l.earlierReports[d.below(len(l.earlierReports))])
	}
	if l.active[lieForeign] > 0 {
		if o, ok := f.checker.attemptElsewhere(r.Node, &d); ok {
			o.State, o.Health = cluster.StateFailed, cluster.HealthUnknown
			add(o)
		}
	}
	if l.active[lieGone] > 0 && len(l.earlierReports) > 0 {
		o := l.earlierReports[d.below(len(l.earlierReports))]
		if o.State == cluster.StateRunning {
			o.State, o.Gone, o.Health = cluster.StateFailed, true, cluster.HealthUnknown
			add(o)
		}
	}
}
