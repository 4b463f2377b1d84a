package wait

import (
	"bytes"
	"testing"

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

	want := "… service/web  starting     1 of 3 tas…\n… job/ci/work  waiting for the server\n" +
		"\x1b[2A\x1b[J" + "… job/ci/work  waiting for the server\n✓ service/web  healthy\n" +
		"\x1b[2A\x1b[J" + "berth: no server; trying again\n" +
		"✓ service/web  healthy\n✗ job/ci/work  failed\n" +
		"\x1b[2A\x1b[J"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("terminal (-want +got):\n%s", diff)
	}
}
