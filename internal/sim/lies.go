package sim

import (
	"sync"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// lies is what a node's agent reports that is not so.
type lies struct {
	mu   sync.Mutex
	now  map[string]int // kinds, by how many events ask for them
	old  []cluster.Observed
	told bool // at least one lie was told
}

// Kinds of lies.
const (
	lieForeign = "foreign" // it reports the end of attempts of other nodes
	lieRepeat  = "repeat"  // it reports again what was so earlier
	lieGone    = "gone"    // it says that nothing is left of what runs
)

func (l *lies) tell(kind string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		l.now = map[string]int{}
	}
	l.now[kind] += n
}

// lied reports whether what the node says was ever not so.
func (l *lies) lied() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// registration is left as it is: what a liar says first is checked as all else.
func (l *lies) registration(*transport.Registration) {}

// report changes a report on its way out.
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
			l.told = true
		}
	}
	d := w.chance.roll(r.Node + ":lie")
	if l.now[lieRepeat] > 0 && len(l.old) > 0 {
		add(l.old[d.of(len(l.old))])
	}
	if l.now[lieForeign] > 0 {
		if o, ok := w.witness.elsewhere(r.Node, &d); ok {
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
