package diskspace

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// Sweeps that no server has received are reported as one.
func TestUnsentSweepsAreOneReport(t *testing.T) {
	t.Parallel()
	var known *cluster.DiskSweep
	a := &Cleaner{
		Node:          &node.Node{Boot: func() time.Duration { return time.Hour }},
		ReportedSweep: func() *cluster.DiskSweep { return known },
	}
	one := func(n int) *cluster.DiskSweep {
		s := &cluster.DiskSweep{At: time.Unix(int64(n), 0), Folder: "/d", Before: 90 - float64(n), After: 70, Images: 6}
		for i := range 6 {
			s.Add(fmt.Sprintf("image%d%d", n, i), 10)
		}
		return s
	}
	a.addSweep(one(1))
	a.addSweep(one(2))
	if s, _ := a.toReport(); s.Images != 12 || s.Freed != 120 || s.Before != 89 ||
		len(s.Names) != cluster.MaxSweepNames || s.Names[0] != "image10" {
		t.Errorf("two are %+v", s)
	}
	known, _ = a.toReport()
	a.addSweep(one(3))
	if s, _ := a.toReport(); s.Images != 6 {
		t.Errorf("after the server received them: %+v", s)
	}
}
