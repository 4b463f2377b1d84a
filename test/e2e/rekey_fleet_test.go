//go:build prove

package e2e_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// TestRekeyOfAFleet gives three servers the same new key, one of them after it was down. No value is sealed with it
// before. The leader dies meanwhile.
func TestRekeyOfAFleet(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	f := harness.NewFleet(t)
	hosts := harness.Loopback(4)
	f.Start(hosts[:3]...)
	f.Agent(hosts[3])
	f.BerthWith(strings.NewReader("fleet-Hush7\n"), "secret", "set", "word").Want(t, 0)
	old := masterIDs(t, f.Berth("operator", "secrets", "keys"))["in-use"]
	leader := f.Leader()
	var down, asked *harness.Server
	for _, s := range f.Servers {
		if s != leader {
			down, asked = asked, s
		}
	}
	down.Kill()
	asked.Berth("operator", "secrets", "rekey", "--detach").Want(t, 0, "is created")
	// The others have it within seconds; the one that is down keeps it from being used.
	f.Eventually(soon, func() error {
		r := asked.Berth("operator", "secrets", "keys")
		if !regexp.MustCompile(`handed-out +0 .* (s\d, s\d) +s\d\n`).MatchString(r.Stdout) {
			return fmt.Errorf("want a key that one server lacks:\n%v", r)
		}
		return nil
	})
	made := masterIDs(t, asked.Berth("operator", "secrets", "keys"))
	if made["in-use"] != old {
		t.Errorf("the keys are %v", made)
	}
	down.Start()
	leader.Kill() // perhaps in the midst of it
	f.Eventually(soon, func() error {
		if r := asked.Berth("operator", "secrets", "keys"); r.Code != 0 ||
			masterIDs(t, r)["in-use"] != made["handed-out"] || masterIDs(t, r)["kept"] != old {
			return fmt.Errorf("want that %s is used, in the place of %s:\n%v", made["handed-out"], old, r)
		}
		return nil
	})
	leader.Start()
	f.Eventually(soon, func() error {
		want := readBytes(t, filepath.Join(asked.Dir, "secrets.key"))
		for _, s := range f.Servers {
			if got := readBytes(t, filepath.Join(s.Dir, "secrets.key")); !bytes.Equal(got, want) ||
				bytes.Count(got, []byte("\n")) != 2 {
				return fmt.Errorf("%s has another file of keys", s.Dir)
			}
		}
		return nil
	})
	for i, s := range f.Servers {
		name := fmt.Sprintf("asks-%d", i)
		f.Eventually(soon, func() error {
			if r := s.Berth("run", f.Write(name+".yaml", fmt.Sprintf(asks, name))); r.Code != 0 {
				return fmt.Errorf("by %s: %v", s.Dir, r)
			}
			return nil
		})
		f.Prints("it is there", "logs", "service/"+name)
	}
}
