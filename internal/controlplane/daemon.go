package controlplane

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// face is what daemons look at of a node besides what the fleet knows of it.
type face struct {
	// gone says that the node is known never to come back, silent that it is not heard.
	gone, silent bool
	// alone says that it is to be emptied and that nothing but tasks of daemons is left there.
	alone bool
}

// daemonNodes yields the nodes of the domain as daemons look at them, ordered by name.
func (l *loop) daemonNodes(yield func(reconciler.DaemonNode) bool) {
	for _, name := range l.fleet.Nodes() {
		n, _, _ := l.fleet.Node(name)
		f := l.faces[name]
		if !yield(reconciler.DaemonNode{Node: &n, Gone: f.gone, Silent: f.silent, Alone: f.alone}) {
			return
		}
	}
}

// faced notes whether what daemons look at of a node has changed. It is called before the fleet learns of the node; now
// is nil for one that is not the domain's.
func (l *loop) faced(name string, now *scheduler.Node, f face) {
	was, _, had := l.fleet.Node(name)
	if had != (now != nil) || l.faces[name] != f || had && !sameFace(&was, now) {
		l.nodesChanged = true
	}
	if now != nil && (!had || !sameFace(&was, now)) {
		l.misfits.nodes[name] = true
	}
	delete(l.faces, name)
	if f != (face{}) {
		l.faces[name] = f
	}
}

// sameFace reports whether all that constraints look at is the same.
func sameFace(a, b *scheduler.Node) bool {
	return a.Arch == b.Arch && a.OS == b.OS && a.Kernel == b.Kernel && slices.Equal(a.Executors, b.Executors) &&
		maps.Equal(a.Labels, b.Labels) && a.Pool == b.Pool && slices.Equal(a.Taints, b.Taints) &&
		slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Networks, b.Networks) &&
		a.Folders.SameForPlacement(b.Folders)
}

// dirtyDaemons marks the daemons once nodes came, went or changed.
func (l *loop) dirtyDaemons(snap *store.Snapshot) {
	if !l.nodesChanged {
		return
	}
	l.nodesChanged = false
	for e := range snap.Services("") {
		if e.Value.Mode == cluster.ModeDaemon {
			l.dirty[e.Value.Owner()] = true
		}
	}
}

// face returns what the watcher's verdict says of a node. One that nobody judged yet is not silent.
func (w *watch) face(name string) face {
	v, ok := w.verdicts[name]
	if !ok {
		return face{}
	}
	return face{gone: v.Gone, silent: !v.Heard, alone: v.alone}
}

// onlyDaemons reports whether nothing stands on a node but tasks of daemons.
func onlyDaemons(snap *store.Snapshot, node string) bool {
	for row := range snap.NodeAttempts(node) {
		if !row.Standing() {
			continue
		}
		o, ok := row.Ref()
		e, stands := snap.Service(o.Cluster, o.Name)
		if !ok || !stands || o.Kind != cluster.KindService || e.Value.Mode != cluster.ModeDaemon {
			return false
		}
	}
	return true
}
