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

// portsPerSite is the number of ports for the tasks of a site. Sites run in parallel on one machine. The leader of a
// site has no record of the ports of other sites.
const portsPerSite = 150

// reservedPorts returns the flag that reserves all assignable ports except for the site's own. It returns no flag if
// the test's own flags reserve ports.
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

// takePorts returns the first of portsPerSite ports that belong to this site until the test ends. Each range has a file
// that its site locks, so sites of other processes cannot take it.
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
