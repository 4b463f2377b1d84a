package fetch

import (
	"slices"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestRanks: each state has its own rank, and states that need attention come first.
func TestRanks(t *testing.T) {
	services := cluster.ServiceHealthy.Values()
	slices.SortStableFunc(services, func(a, b api.ServiceState) int { return serviceRank(a) - serviceRank(b) })
	for i, s := range services {
		if serviceRank(s) != i {
			t.Errorf("service state %s: got rank %d, want %d", s, serviceRank(s), i)
		}
	}
	jobs := cluster.JobRunning.Values()
	slices.SortStableFunc(jobs, func(a, b api.JobState) int { return jobRank(a) - jobRank(b) })
	for i, s := range jobs {
		if jobRank(s) != i {
			t.Errorf("job state %s: got rank %d, want %d", s, jobRank(s), i)
		}
	}
	if serviceRank(cluster.ServiceCrashLooping) > serviceRank(cluster.ServiceHealthy) {
		t.Error("a service that crashes comes after healthy ones")
	}
}
