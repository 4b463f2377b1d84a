package sim

import (
	"sync"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// lies holds the false reports of a node's agent.
type lies struct {
	mu   sync.Mutex
	now  map[string]int // number of present events, by kind
	old  []cluster.Observed
	lied bool // at least one false report was sent
}

// Kinds of lies.
const (
	lieForeign = "foreign" // it reports the end of attempts of other nodes
	lieRepeat  = "repeat"  // it repeats earlier reports
	lieGone    = "gone"    // it reports running attempts as gone
)

func (l *lies) addKind(kind string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		l.now = map[string]int{}
	}
	l.now[kind] += n
}

// hasLied reports whether the node ever sent a false report.
func (l *lies) hasLied() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lied
}

// registration changes nothing: the first report of a lying node is checked like all others.
func (l *lies) registration(*transport.Registration) {}

// report adds false reports to an outgoing report.
func (l *lies) report(r *transport.Report, w *World) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.old = append(l.old, r.Tasks...)
	if len(l.old) > 50 {
		l.old = l.old[len(l.old)-50:]
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
			l.lied = true
		}
	}
	d := w.random.roll(r.Node + ":lie")
	if l.now[lieRepeat] > 0 && len(l.old) > 0 {
		add(l.old[d.of(len(l.old))])
	}
	if l.now[lieForeign] > 0 {
		if o, ok := w.checker.attemptElsewhere(r.Node, &d); ok {
			o.State, o.Health = cluster.StateFailed, cluster.HealthUnknown
			add(o)
		}
	}
	if l.now[lieGone] > 0 && len(l.old) > 0 {
		o := l.old[d.of(len(l.old))]
		if o.State == cluster.StateRunning {
			o.State, o.Gone, o.Health = cluster.StateFailed, true, cluster.HealthUnknown
			add(o)
		}
	}
}
