package wait

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/wording"
)

// TestProgressInPlace checks that an update replaces the lines and that End removes them.
func TestProgressInPlace(t *testing.T) {
	var out bytes.Buffer
	a := session.New(nil, nil, &out)
	web, work := &Target{Name: session.Name{Kind: wording.KindService, Cluster: "default", Name: "web"}},
		&Target{Name: session.Name{Kind: wording.KindJob, Cluster: "ci", Name: "work"}}
	p := NewProgress(a, []*Target{web, work})
	p.width = 40

	web.Line = "starting     1 of 3 tasks healthy, and much more to say"
	p.Show()
	web.Line, web.done = "healthy", true
	p.Show()
	work.Failure, work.done, work.Line = "failed", true, "failed"
	p.Note("no server; trying again")
	p.Show()
	p.End()

	want := "… service/web  starting\n    1 of 3 tasks healthy, and much more\n    to say\n" +
		"… ci/job/work  waiting for the server\n" +
		"\x1b[4A\x1b[J" + "… ci/job/work  waiting for the server\n✓ service/web  healthy\n" +
		"\x1b[2A\x1b[J" + "berth: no server; trying again\n" +
		"✓ service/web  healthy\n✗ ci/job/work  failed\n" +
		"\x1b[2A\x1b[J"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("terminal (-want +got):\n%s", diff)
	}
}

// TestProgressShowsTheReason checks that the end of a line is seen at usual widths of terminals, and that no line is
// longer than the terminal.
func TestProgressShowsTheReason(t *testing.T) {
	web := &Target{Name: session.Name{Kind: wording.KindService, Cluster: "default", Name: "web"}}
	web.Line = "rolling      web@2: 1 of 3 healthy, web@1: 2 healthy; web.2.1 waits for a node: 3 nodes: memory short"
	for _, width := range []int{60, 80, 120, 200} {
		var out bytes.Buffer
		p := NewProgress(session.New(nil, nil, &out), []*Target{web})
		p.width = width
		p.Show()
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasSuffix(got, "3 nodes: memory short") {
			t.Errorf("width %d: the reason is missing:\n%s", width, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n >= width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
	}
}
