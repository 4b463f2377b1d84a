package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// pipelineJob is the job of examples/pipeline.yaml.
const pipelineJob = "pipeline"

// showJobs is the chapter of batch jobs: steps, retries, the queue and a gang. Each claim is verified, also without
// -check.
func (d *demo) showJobs(ctx context.Context) error {
	return d.verifyClaims(ctx, []claim{
		{"steps", d.showSteps},
		{"retry", d.showRetry},
		{"queue", d.showQueue},
		{"gang", d.showGang},
	})
}

// showSteps runs a job whose steps need each other. One of its failures is retried, another one is final.
func (d *demo) showSteps(ctx context.Context) (string, error) {
	d.chapter("a job whose steps need each other: build, then test and sign, then publish; a test and sign fail first")
	err := d.berth.show(ctx, "run", "--timeout", d.limit(time.Minute).String(), "pipeline.yaml")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		return "", fmt.Errorf("step sign must fail, and berth run end with exit code 1: %w", orExit(err))
	}
	if err := d.berth.show(ctx, "status", "job/"+pipelineJob); err != nil {
		return "", err
	}
	if err := d.berth.jobIs(ctx, pipelineJob, "failed", map[string]string{
		"build": "succeeded", "test": "succeeded", "sign": "failed", "publish": "skipped",
	}); err != nil {
		return "", err
	}
	return "test 1 was retried, as its exit code 75 is intermittent; code 1 of sign is final, so publish was skipped",
		d.berth.pipelineRan(ctx, pipelineFailed())
}

// showRetry tries the failed task again, and demands that nothing else is repeated.
func (d *demo) showRetry(ctx context.Context) (string, error) {
	d.chapter("the cause is repaired, and the failed task is retried by hand")
	if err := d.berth.show(ctx, "retry", "job/"+pipelineJob); err != nil {
		return "", err
	}
	if err := d.berth.show(ctx, "status", "job/"+pipelineJob); err != nil {
		return "", err
	}
	if err := d.berth.jobIs(ctx, pipelineJob, "succeeded", map[string]string{
		"build": "succeeded", "test": "succeeded", "sign": "succeeded", "publish": "succeeded",
	}); err != nil {
		return "", err
	}
	return "sign and publish ran, build and the tests were not repeated",
		d.berth.pipelineRan(ctx, append(pipelineFailed(), "sign.0 attempt 2 code 0", "publish.0 attempt 1 code 0"))
}

// pipelineFailed lists the attempts of the pipeline until it has failed.
func pipelineFailed() []string {
	return []string{
		"build.0 attempt 1 code 0",
		"test.0 attempt 1 code 0", "test.1 attempt 1 code 75", "test.1 attempt 2 code 0", "test.2 attempt 1 code 0",
		"sign.0 attempt 1 code 1",
	}
}

// pipelineRan demands the attempts of the pipeline: in the records of Berth, and in the file that the programs wrote.
func (b *berth) pipelineRan(ctx context.Context, want []string) error {
	attempts, err := b.attempts(ctx, pipelineJob)
	if err != nil {
		return err
	}
	var got []string
	for _, a := range attempts {
		if a.Exit != nil {
			got = append(got, fmt.Sprintf("%s.%d attempt %d code %d", a.Step, a.Index, a.Attempt, a.Exit.Code))
		}
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		return fmt.Errorf("the attempts of job/%s are %q, want %q", pipelineJob, got, want)
	}
	lines, err := b.volumeFile("pipeline.attempts")
	if err != nil {
		return err
	}
	return pipelineOrder(lines, want)
}

// pipelineOrder compares what the programs of the pipeline wrote when they began with the attempts that should have
// run: each ran once, build before all others and publish after them.
func pipelineOrder(lines string, attempts []string) error {
	var got, want []string
	for line := range strings.Lines(lines) {
		got = append(got, strings.TrimPrefix(strings.TrimSpace(line), "default."+pipelineJob+".1."))
	}
	for _, attempt := range attempts {
		name, rest, _ := strings.Cut(attempt, " attempt ")
		number, _, _ := strings.Cut(rest, " ")
		want = append(want, name+" "+number)
	}
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		return fmt.Errorf("the programs of these attempts ran: %q, want %q", got, want)
	}
	if !strings.HasPrefix(got[0], "build.") {
		return fmt.Errorf("the first attempt is %q, want build: %q", got[0], got)
	}
	last := len(got) - 1
	if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "publish.") }); i >= 0 && i < last {
		return fmt.Errorf("publish began before the steps that it needs: %q", got)
	}
	return nil
}

// attempts lists all attempts of a job's tasks, the ended ones too, by task and number.
func (b *berth) attempts(ctx context.Context, job string) ([]task, error) {
	out, err := b.read(ctx, "ps", "-a", "--job", job, "-o", "json")
	if err != nil {
		return nil, err
	}
	attempts, err := items[task](out)
	if err != nil {
		return nil, fmt.Errorf("read berth ps: %w", err)
	}
	return attempts, nil
}

// jobIs demands the states of a job and of its steps.
func (b *berth) jobIs(ctx context.Context, name, want string, wantSteps map[string]string) error {
	out, err := b.read(ctx, "status", "job/"+name, "-o", "json")
	if err != nil {
		return err
	}
	var job struct {
		Status struct {
			State string `json:"state"`
			Steps []struct {
				Name  string `json:"name"`
				State string `json:"state"`
			} `json:"steps"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &job); err != nil {
		return fmt.Errorf("read berth status: %w", err)
	}
	if job.Status.State != want || len(job.Status.Steps) != len(wantSteps) {
		return fmt.Errorf("job/%s is %s with the steps %+v, want %s", name, job.Status.State, job.Status.Steps, want)
	}
	for _, s := range job.Status.Steps {
		if s.State != wantSteps[s.Name] {
			return fmt.Errorf("step %s of job/%s is %s, want %s", s.Name, name, s.State, wantSteps[s.Name])
		}
	}
	return nil
}
