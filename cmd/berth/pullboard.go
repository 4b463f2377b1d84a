package main

import (
	"strings"

	"github.com/berthd/berth/api"
)

// mostLeft is how many nodes are named that were not done when somebody stopped waiting.
const mostLeft = 10

// pullBoard shows on standard error how nodes pull images: on a terminal a line for each in place, elsewhere a line for
// each change, and how much has come every few seconds.
type pullBoard struct {
	*progress
	by map[string]*target
}

func (a *app) newPullBoard() *pullBoard { return &pullBoard{a.newProgress(nil), map[string]*target{}} }

// take takes in what a node does.
func (b *pullBoard) take(n api.ImagePullNews) {
	t := b.by[n.Node]
	if t == nil {
		t = &target{name: name{kind: wordNode, name: n.Node}}
		b.by[n.Node] = t
		b.targets = append(b.targets, t)
		b.label = max(b.label, len(t.name.String()))
	}
	if t.line = oneLine(n.Message); n.Done {
		t.done, t.line = true, "done"
	}
	t.brief = t.line
	if what, _, counts := strings.Cut(t.line, ": "); counts && strings.Contains(t.line, " layers, ") {
		t.brief = what // that more has come is told less often than that something else goes on
	}
	b.show()
}

// tellLeft tells what goes on once nobody waits any more.
func (b *pullBoard) tellLeft() {
	var left []*target
	for _, t := range b.targets {
		if !t.done {
			left = append(left, t)
		}
	}
	a := b.app
	a.tell("stopped waiting: nodes that are not done pull these images no more, unless a task there wants " +
		"one; what has come is kept for an hour, and the next pull goes on from it")
	for _, t := range left[:min(len(left), mostLeft)] {
		a.tell("  %s", b.line(t))
	}
	if rest := len(left) - mostLeft; rest > 0 {
		a.tell("  and %s more", count(rest, "node"))
	}
}
