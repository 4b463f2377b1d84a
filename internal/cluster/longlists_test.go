package cluster

import (
	"strconv"
	"testing"
	"time"

	"github.com/berthd/berth/internal/yardstick"
)

// TestLongListsAreChecked validates lists as long as a request may have them: each has few faults, and the time grows
// with the length and not with its square, which would be half an hour.
func TestLongListsAreChecked(t *testing.T) {
	const n = 500_000
	texts, codes := make([]string, n), make([]int, n)
	for i := range n {
		texts[i], codes[i] = strconv.Itoa(i), 1000+i
	}
	affinities, tolerations := make([]Affinity, n), make([]Toleration, n)
	for i := range n {
		affinities[i].Attribute, tolerations[i].Key = texts[i], texts[i]
	}
	job := func(change func(*Step)) func() error {
		step := Step{Name: "s", Definition: Ref{Name: "d", Version: 1}, Count: 1, Retries: 1}
		change(&step)
		j := Job{Cluster: "c", Name: "j", Steps: []Step{step}}
		return j.Validate
	}
	permitted := Cluster{Name: "c", Permissions: make([]Permission, n)}
	for i := range n {
		permitted.Permissions[i] = Permission(texts[i])
	}
	began := time.Now()
	for name, validate := range map[string]func() error{ // order-free: each by itself
		"a matrix":    job(func(s *Step) { s.Parameters = &Parameters{Matrix: map[string][]string{"A": texts}} }),
		"exit codes":  job(func(s *Step) { s.ExitCodes = &ExitCodes{Final: codes} }),
		"needs":       job(func(s *Step) { s.Needs = texts }),
		"affinities":  job(func(s *Step) { s.Placement.Affinities = affinities }),
		"tolerations": job(func(s *Step) { s.Placement.Tolerations = tolerations }),
		"permissions": permitted.Validate,
	} {
		if faults := len(FaultsOf(validate())); faults < 1 || faults > maxFaults {
			t.Errorf("%s: %d faults, want 1 to %d", name, faults, maxFaults)
		}
	}
	if took, most := time.Since(began), yardstick.Scaled(20*time.Second); took > most {
		t.Errorf("the lists were checked in %v, want %v at most", took, most)
	}
}
