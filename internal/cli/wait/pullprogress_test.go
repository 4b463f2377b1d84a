package wait

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
)

// TestPullProgress checks the lines without a terminal: one for each change, byte counts at an interval, and the
// unfinished nodes at the end.
func TestPullProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(0, 0)
	a := session.New(nil, nil, &out)
	a.Now, a.Env = func() time.Time { return now }, func(string) string { return "" }
	b := NewPullProgress(a)
	update := func(node, text string) { b.Update(api.ImagePullNews{Node: node, Message: text}) }
	update("n1", "pulling a:1: 0 of 2 layers, 0.0 of 8.0 MiB")
	update("n2", "pulling a:1")
	update("n1", "pulling a:1: 0 of 2 layers, 3.0 of 8.0 MiB, 1.0 MiB/s")
	update("n2", "pulling a:1: registry r answered 429 Too Many Requests; trying again after 30s (try 2 of 6)")
	now = now.Add(minReprintInterval)
	update("n1", "pulling a:1: 1 of 2 layers, 6.0 of 8.0 MiB, 1.0 MiB/s")
	b.Update(api.ImagePullNews{Node: "n1", Done: true})
	b.End()
	b.PrintUnfinished()
	want := `node/n1  pulling a:1: 0 of 2 layers, 0.0 of 8.0 MiB
node/n2  pulling a:1
node/n2  pulling a:1: registry r answered 429 Too Many Requests; trying again after 30s (try 2 of 6)
node/n1  pulling a:1: 1 of 2 layers, 6.0 of 8.0 MiB, 1.0 MiB/s
node/n1  done
`
	left := "  node/n2  pulling a:1: registry r answered 429 Too Many Requests; trying again after 30s (try 2 of 6)\n"
	got := out.String()
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, left) ||
		!strings.Contains(got[len(want):], "stopped waiting: unfinished nodes") {
		t.Errorf("got\n%s\nwant\n%s…\n%s", got, want, left)
	}
}
