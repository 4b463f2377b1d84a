package reconciler_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// The deadline of a gang begins when the needs of its job are met, and not while the job waits for them.
func TestDeadlineOfAGangAfterItsNeeds(t *testing.T) {
	began := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	def := cluster.TaskDefinition{Name: "w", Version: 1}
	decide := func(waited time.Duration, unmet string, met time.Time) reconciler.Decision {
		job := &cluster.Job{
			Cluster: "c", Name: "j", Submitted: began, Needs: []string{"service/db"}, NeedsMet: met,
			Lifespan: cluster.Lifespan{Generation: 1, Created: began, Updated: began},
			Steps: []cluster.Step{{
				Name: "s", Definition: def.Ref(), Count: 2,
				Gang: &cluster.Gang{Deadline: cluster.Duration(10 * time.Minute)},
			}},
		}
		if !met.IsZero() {
			job.Updated = met // as the leader writes it
		}
		return reconciler.Job(reconciler.JobInput{
			Owner: job.Owner(), Spec: job, Unmet: unmet, Now: began.Add(waited),
			Definitions: func(cluster.Ref) *cluster.TaskDefinition { return &def },
		})
	}
	if d := decide(time.Hour, "waits for service/db", time.Time{}); len(d.Conclusions) > 0 || !d.AwaitsNeeds ||
		len(d.Pending) != 2 || d.Pending[0].Hold.Reason != cluster.ReasonNeeds {
		t.Errorf("while it waits: %+v", d)
	}
	if d := decide(time.Hour, "", time.Time{}); !d.Begin || len(d.Conclusions) > 0 || d.Pending[0].Hold.Reason == "" {
		t.Errorf("when they are met: %+v", d)
	}
	met := began.Add(time.Hour)
	if d := decide(69*time.Minute, "", met); len(d.Conclusions) > 0 || d.Pending[0].Hold != (cluster.Hold{}) {
		t.Errorf("nine minutes later: %+v", d)
	}
	if d := decide(70*time.Minute, "", met); len(d.Conclusions) != 1 {
		t.Errorf("ten minutes later: %+v", d)
	}
}
