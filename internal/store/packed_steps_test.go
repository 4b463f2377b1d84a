package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// largeJob returns a job of layers of 100 steps. Each step needs three of the layer before.
func largeJob(steps int) *cluster.Job {
	job := &cluster.Job{Cluster: "c", Name: "large", Lifespan: cluster.Lifespan{Generation: 1}}
	name := func(i int) string { return fmt.Sprintf("compile-part-%05d", i) }
	for i := range steps {
		s := cluster.Step{
			Name: name(i), Definition: cluster.Ref{Name: "large-compile", Version: 1}, Count: 1 + i%3, Retries: i % 4,
			TimeLimit: cluster.Duration(1+i%50) * cluster.Duration(1e9), OnDisconnect: cluster.DisconnectWait,
			Placement: cluster.Placement{AntiAffinity: cluster.AntiAffinityNone},
		}
		if layer := i / 100 * 100; layer > 0 {
			for k := range 3 {
				s.Needs = append(s.Needs, name(layer-100+(i*7+k*31)%100))
			}
			s.Requires = cluster.RequireCompleted
		}
		job.Steps = append(job.Steps, s)
		job.Inline = append(job.Inline, name(i))
	}
	return job
}

// The most tasks that may be tried again, with the longest names of steps, find room in a record of the largest size.
func TestRetriesOfALargeJob(t *testing.T) {
	job := largeJob(cluster.MaxSteps)
	before, err := store.Encode(job)
	if err != nil {
		t.Fatal(err)
	}
	job.Retried.Tasks = map[string]time.Time{}
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for i := range cluster.MaxRetriedTasks {
		at = at.Add(time.Duration(1_234_567_891 * (i%97 + 1)))
		step := fmt.Sprintf("%s-%05d", strings.Repeat("n", 57), i*7919%10_000)
		job.Retried.Tasks[cluster.RetriedTask(step, i%10)] = at
	}
	value, err := store.Encode(job)
	if err != nil {
		t.Fatal(err)
	}
	if most := memory.ConsulLimits().Bytes - store.MaxJobBytes; len(value)-len(before) > most {
		t.Errorf("the retries take %d bytes, want at most %d", len(value)-len(before), most)
	}
	got, err := store.Decode[cluster.Job](value)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(job.Retried, got.Retried); diff != "" {
		t.Errorf("the retries are read as others (-want +got):\n%.500s", diff)
	}
}

// The record of a job of any size holds all of it, and Consul takes it.
func TestRecordsOfLargeJobs(t *testing.T) {
	for _, steps := range []int{1, 100, 500, cluster.MaxSteps} {
		job := largeJob(steps)
		cron := &cluster.Cron{
			Cluster: "c", Name: "nightly", Job: cluster.CronJob{Steps: job.Steps},
			Lifespan: cluster.Lifespan{Inline: job.Inline},
		}
		value, err := store.Encode(job)
		if err != nil {
			t.Fatal(err)
		}
		if packs := bytes.Contains(value, []byte(`"packed":"`)); packs != (steps > 200) { // each takes 270 bytes
			t.Errorf("%d steps are packed: %v", steps, packs)
		}
		t.Logf("%d steps: %d bytes", steps, len(value))
		if most := min(store.MaxJobBytes, memory.ConsulLimits().Bytes); len(value) > most {
			t.Errorf("%d steps take %d bytes, want at most %d", steps, len(value), most)
		}
		got, err := store.Decode[cluster.Job](value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(job, got, cmpopts.IgnoreFields(cluster.Job{}, "Positions")); diff != "" {
			t.Errorf("a job of %d steps is read as another one (-want +got):\n%.500s", steps, diff)
		}
		for _, i := range []int{0, steps / 2, steps - 1} {
			if s := got.Step(job.Steps[i].Name); s != &got.Steps[i] {
				t.Errorf("step %d of %d is not found by its name", i, steps)
			}
		}
		if value, err = store.Encode(*cron); err != nil {
			t.Fatal(err)
		}
		again, err := store.Decode[cluster.Cron](value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cron, again); diff != "" {
			t.Errorf("a cron of %d steps is read as another one (-want +got):\n%.500s", steps, diff)
		}
	}
}

// Positions of other steps do no harm.
func TestStepsByOldPositions(t *testing.T) {
	value, err := store.Encode(largeJob(1000))
	if err != nil {
		t.Fatal(err)
	}
	job, err := store.Decode[cluster.Job](value)
	if err != nil {
		t.Fatal(err)
	}
	edited := *job
	edited.Steps = append([]cluster.Step{{Name: "first"}}, job.Steps[:10]...)
	for i := range edited.Steps {
		if s := edited.Step(edited.Steps[i].Name); s != &edited.Steps[i] {
			t.Errorf("step %d is not found by its name", i)
		}
	}
	if s := edited.Step(job.Steps[500].Name); s != nil {
		t.Errorf("a removed step is found: %s", s.Name)
	}
}

// A damaged record is an error and fills no memory.
func TestDamagedPackedSteps(t *testing.T) {
	value, err := store.Encode(largeJob(1000))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(value, []byte(`"packed":"`)) + len(`"packed":"`)
	for _, damaged := range []string{
		string(value[:at+400]) + `"}`,
		strings.Replace(string(value), string(value[at:at+40]), strings.Repeat("A", 40), 1),
		string(value[:at]) + `not base64"}`,
	} {
		if job, err := store.Decode[cluster.Job]([]byte(damaged)); err == nil {
			t.Errorf("a damaged record is read as a job of %d steps", len(job.Steps))
		}
	}
}
