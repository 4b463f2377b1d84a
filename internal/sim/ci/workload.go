// Package ci makes up the work of a CI system for the simulator, and computes what must become of it.
//
// Generate returns the acts of the users over a day. Program returns what the program of an attempt does. Judge
// computes the state of a job from the ends of its attempts. FairUsers are users whose jobs wait in a fair queue, and
// FairTasks computes what each of them should hold. Both models repeat the rules of the manual and share no code with
// the control plane, so that the two can disagree.
package ci

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Cluster is the cluster of the jobs of Generate.
const Cluster = "ci"

// Limits of the cluster.
const (
	MaxJobs    = 30 // jobs with tasks at the same time
	maxDeploys = 3  // tasks of the concurrency group of deployments at the same time
)

// keepJobs is how long the cluster keeps jobs that have ended. Most jobs of a day are deleted in it.
const keepJobs = cluster.Duration(20 * time.Minute)

// Config is the size of a workload.
type Config struct {
	Seed uint64
	// Length is the length of the day, at least MinLength. The rhythm follows it, so an hour has one busy time, too.
	Length time.Duration
	Jobs   int
}

// MinLength is the length of the shortest day.
const MinLength = 30 * time.Minute

// Arrivals returns the time in which jobs arrive. What is left of the day suffices for the last ones to end.
func (c *Config) Arrivals() time.Duration { return c.Length - max(c.Length/6, MinLength/3) }

// Verb is what a user does with a job.
type Verb string

// Verbs.
const (
	Submit  Verb = "submit"
	Cancel  Verb = "cancel"
	Hold    Verb = "hold"
	Release Verb = "release"
	Retry   Verb = "retry"   // try failed tasks again
	Hurry   Verb = "hurry"   // raise the priority
	Restart Verb = "restart" // run the job again
)

// Act is one act of a user.
type Act struct {
	At   time.Duration
	Verb Verb
	// Cluster and Job name the job.
	Cluster, Job string
	// Spec is the job of a Submit.
	Spec *cluster.Job
}

// Clusters returns the records of the clusters with jobs.
func Clusters() []*cluster.Cluster {
	all := []*cluster.Cluster{
		{Name: Cluster, Domain: cluster.DefaultDomain, KeepJobs: keepJobs, Quota: &cluster.Quota{Jobs: MaxJobs}},
	}
	for _, name := range slices.Sorted(maps.Keys(fairWeights)) {
		all = append(all, &cluster.Cluster{
			Name: name, Domain: cluster.DefaultDomain, KeepJobs: keepJobs,
			Queue: &cluster.QueueSettings{Weight: fairWeights[name]},
		})
	}
	return all
}

// Pools returns the records of the pools with settings.
func Pools() []*cluster.Pool {
	return []*cluster.Pool{{Name: FairPool, Queue: &cluster.QueueSettings{Policy: cluster.QueueFair}}}
}

// Owns reports whether jobs of the workload are in a cluster.
func Owns(name string) bool { return name == Cluster || fairWeights[name] > 0 }

// Definitions returns the task definitions of the steps. Programs come from Program, and the command is for attempts
// that it does not know.
func Definitions() []*cluster.TaskDefinition {
	var all []*cluster.TaskDefinition
	for _, d := range []struct {
		name string
		cpu  cluster.MilliCPU
	}{{"ci-small", 250}, {"ci-medium", 500}, {"ci-large", 1000}, {"ci-node", 3600}} {
		all = append(all, definition(d.name, cluster.Resources{CPU: d.cpu}))
	}
	for _, u := range FairUsers() {
		all = append(all, u.Definition())
	}
	return all
}

func definition(name string, r cluster.Resources) *cluster.TaskDefinition {
	return &cluster.TaskDefinition{
		Name: name, Version: 1, Grace: cluster.Duration(3 * time.Second),
		Containers: []cluster.Container{{Name: "main", Command: []string{"exit", "0"}, Resources: r}},
	}
}

// Generate returns the acts of the users, by time. Equal configurations give equal acts.
func Generate(c Config) []Act {
	g := &generator{Config: c, random: rand.New(rand.NewPCG(c.Seed, 0xc1))}
	for i := range c.Jobs {
		g.addJob(fmt.Sprintf("j%05d", i+1), g.arrival(i))
	}
	slices.SortStableFunc(g.acts, func(a, b Act) int { return cmp.Compare(a.At, b.At) })
	return g.acts
}

type generator struct {
	Config
	random *rand.Rand
	acts   []Act
}

// arrival returns the time of the nth job. The rate of arrivals is a raised cosine: at the busiest time five times that
// of the night.
func (g *generator) arrival(n int) time.Duration {
	const depth = 2.0 / 3
	share := (float64(n) + g.random.Float64()) / float64(g.Jobs)
	low, high := 0.0, 1.0 // the inverse of x - depth*sin(2πx)/2π
	for range 40 {
		middle := (low + high) / 2
		if middle-depth*math.Sin(2*math.Pi*middle)/(2*math.Pi) < share {
			low = middle
		} else {
			high = middle
		}
	}
	return time.Duration(low * float64(g.Arrivals())).Truncate(time.Millisecond)
}

func (g *generator) addJob(name string, at time.Duration) {
	job := &cluster.Job{
		Cluster: Cluster, Name: name, Priority: []cluster.Priority{500, 500, 500, 450, 550}[g.below(5)],
		Steps: g.steps(),
	}
	if g.oneIn(50) {
		job.Priority = 700 // it preempts others
	}
	if g.oneIn(40) {
		job.Deadline = cluster.Duration(2+g.below(8)) * cluster.Duration(time.Minute)
	}
	job.Hold = g.oneIn(25)
	job.SetDefaults()
	g.acts = append(g.acts, Act{At: at, Verb: Submit, Cluster: Cluster, Job: name, Spec: job})
	later := func(verb Verb, from, span time.Duration) {
		g.acts = append(g.acts, Act{At: at + from + g.span(span), Verb: verb, Cluster: Cluster, Job: name})
	}
	if job.Hold {
		later(Release, 30*time.Second, 2*time.Minute)
	}
	switch {
	case g.oneIn(20):
		later(Cancel, 0, 3*time.Minute)
	case g.oneIn(20):
		later(Hold, 0, time.Minute)
		later(Release, time.Minute, 2*time.Minute)
	case g.oneIn(15):
		later(Hurry, 0, time.Minute)
	case g.oneIn(15):
		later(Restart, 0, 4*time.Minute)
	}
	if g.oneIn(3) {
		later(Retry, 2*time.Minute, 4*time.Minute)
	}
}

func (g *generator) below(n int) int  { return g.random.IntN(n) }
func (g *generator) oneIn(n int) bool { return g.random.IntN(n) == 0 }

func (g *generator) span(limit time.Duration) time.Duration {
	return time.Duration(g.random.Int64N(int64(limit))).Truncate(time.Millisecond)
}

// steps returns the steps of a job. Four of seven jobs are pipelines.
func (g *generator) steps() []cluster.Step {
	switch n := g.below(100); {
	case n < 57:
		return g.pipeline()
	case n < 72:
		return []cluster.Step{step("lint", "ci-small", 1+g.below(4))}
	case n < 82:
		return g.matrix()
	case n < 90:
		gang := step("cluster", "ci-large", 2+g.below(5))
		gang.Gang, gang.Retries = new(cluster.Gang), 1
		return []cluster.Step{gang}
	case n < 96:
		batch := step("batch", "ci-small", 30+g.below(90))
		batch.Idempotent, batch.Retries, batch.Parallelism = true, 1, 10+g.below(20)
		return []cluster.Step{batch}
	}
	return []cluster.Step{step("benchmark", "ci-node", 1)}
}

// pipeline returns checkout → build → test → deploy, often with a step that cleans up.
func (g *generator) pipeline() []cluster.Step {
	checkout := step("checkout", "ci-small", 1)
	checkout.Retries, checkout.Idempotent = 2, true
	build := step("build", "ci-large", 1+g.below(2))
	build.Needs, build.Retries = []string{"checkout"}, 1
	build.ExitCodes = &cluster.ExitCodes{Final: []int{BrokenCode}}
	test := step("test", []string{"ci-small", "ci-medium"}[g.below(2)], 4+g.below(31))
	test.Needs, test.Retries = []string{"build"}, 2
	test.ExitCodes = &cluster.ExitCodes{Intermittent: []int{FlakyCode}}
	if g.oneIn(5) {
		test.Parallelism = 4 + g.below(10)
	}
	deploy := step("deploy", "ci-small", 1) // neither idempotent nor with retries
	deploy.Needs = []string{"build", "test"}
	deploy.Concurrency = &cluster.Concurrency{Group: "deploy", Limit: maxDeploys}
	all := []cluster.Step{checkout, build, test, deploy}
	if g.oneIn(2) {
		clean := step("clean", "ci-small", 1)
		clean.Needs, clean.Requires = []string{"test", "deploy"}, cluster.RequireResolved
		clean.Idempotent, clean.Retries = true, 2
		all = append(all, clean)
	}
	return all
}

// matrix returns builds of several platforms with tests of their own, and a report of all of them.
func (g *generator) matrix() []cluster.Step {
	var all []cluster.Step
	report := step("report", "ci-small", 1)
	report.Requires, report.Retries = cluster.RequireResolved, 2
	for _, platform := range []string{"-amd64", "-arm64", "-riscv64"}[:2+g.below(2)] {
		build, test := step("build"+platform, "ci-medium", 1), step("test"+platform, "ci-small", 2+g.below(9))
		build.Retries = 1
		test.Needs, test.Retries = []string{build.Name}, 1
		test.Idempotent = g.oneIn(2)
		report.Needs = append(report.Needs, test.Name)
		all = append(all, build, test)
	}
	return append(all, report)
}

func step(name, definition string, count int) cluster.Step {
	return cluster.Step{
		Name: name, Definition: cluster.Ref{Name: definition, Version: 1}, Count: count,
		TimeLimit: cluster.Duration(3 * time.Minute), Placement: cluster.Placement{Pool: MainPool},
	}
}
