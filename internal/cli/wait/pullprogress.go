package wait

import (
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/wording"
)

// maxListedNodes bounds the unfinished nodes in the message after an interruption.
const maxListedNodes = 10

// PullProgress shows on standard error how nodes pull images. A terminal has one line for each node. Elsewhere each
// change is a line, and byte counts follow at an interval.
type PullProgress struct {
	*Progress
	targetsByNode map[string]*Target
}

// NewPullProgress returns a progress without nodes.
func NewPullProgress(sess *session.Session) *PullProgress {
	return &PullProgress{NewProgress(sess, nil), map[string]*Target{}}
}

// Update shows the state of a node's pull.
func (b *PullProgress) Update(n api.ImagePullNews) {
	t := b.targetsByNode[n.Node]
	if t == nil {
		t = &Target{Name: session.Name{Kind: wording.KindNode, Name: n.Node}}
		b.targetsByNode[n.Node] = t
		b.targets = append(b.targets, t)
		b.label = max(b.label, len(t.Name.String()))
	}
	if t.Line = wording.OneLine(n.Message); n.Done {
		t.done, t.Line = true, "done"
	}
	t.Brief = t.Line
	if what, _, counts := strings.Cut(t.Line, ": "); counts && strings.Contains(t.Line, " layers, ") {
		t.Brief = what // a change of the byte count alone is printed less often
	}
	b.Show()
}

// PrintUnfinished prints the unfinished nodes after an interruption.
func (b *PullProgress) PrintUnfinished() {
	var left []*Target
	for _, t := range b.targets {
		if !t.done {
			left = append(left, t)
		}
	}
	a := b.sess
	a.Messagef("stopped waiting: unfinished nodes stop pulling these images, unless a task needs " +
		"one; the data received so far is kept for an hour, and the next pull continues from it")
	for _, t := range left[:min(len(left), maxListedNodes)] {
		a.Messagef("  %s", b.format(t))
	}
	if rest := len(left) - maxListedNodes; rest > 0 {
		a.Messagef("  and %s more", wording.Count(rest, "node"))
	}
}
