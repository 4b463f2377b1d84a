package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// portsPerSite is how many ports the tasks of a site may get. Sites run side by side on one machine, and each has its
// own leader, which knows nothing of the ports that the others' tasks listen on.
const portsPerSite = 150

// reservedPorts returns the flag that keeps the site's tasks off all assigned ports but its own. The flags are those
// that the test gives: one that reserves ports itself gets none.
func (s *Site) reservedPorts(flags []string) []string {
	if s.Strict || slices.Contains(flags, "--reserved-ports") {
		return nil
	}
	if s.firstPort == 0 {
		s.firstPort = takePorts(s.tb)
	}
	var ranges []string
	if first := s.firstPort; first > cluster.FirstAutoPort {
		ranges = append(ranges, fmt.Sprintf("%d-%d", cluster.FirstAutoPort, first-1))
	}
	if last := s.firstPort + portsPerSite - 1; last < cluster.LastAutoPort {
		ranges = append(ranges, fmt.Sprintf("%d-%d", last+1, cluster.LastAutoPort))
	}
	return []string{"--reserved-ports", strings.Join(ranges, ",")}
}

// takePorts returns the first of portsPerSite ports that no other site has until the test has ended, in whatever
// process it runs: each range has a file that is locked by the site that has it.
func takePorts(tb testing.TB) (first int) {
	tb.Helper()
	dir := filepath.Join(os.TempDir(), "berth-test-ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	testkit.Eventually(tb, readyLimit, func() error {
		for first = cluster.FirstAutoPort; first+portsPerSite-1 <= cluster.LastAutoPort; first += portsPerSite {
			file, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(first)), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				tb.Cleanup(func() { _ = file.Close() }) // and so unlocks it
				return nil
			}
			_ = file.Close() // it is another site's
		}
		return fmt.Errorf("other sites have all ports that tasks may be assigned")
	})
	return first
}
