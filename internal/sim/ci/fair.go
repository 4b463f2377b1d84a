package ci

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Pools of the day. The jobs of Generate run in MainPool. The fair queue is that of FairPool.
const (
	MainPool = "main"
	FairPool = "farm"
)

// Devices of each node of FairPool.
const (
	FairDeviceType = "gpu"
	FairDevices    = 32
)

// FairUser is a user of the fair queue.
type FairUser struct {
	Cluster, Name string
	// Demand is that of a task, and Devices is the number of its devices.
	Demand  cluster.Demand
	Devices int
	// Every, unless 0, is the time from one job to the next. Without it, tasks of the user always wait.
	Every time.Duration

	tasks, gang       int // the tasks of a job, which are in gangs of that many; 0 for none
	shortest, longest time.Duration
	priorities        []cluster.Priority
}

// fairWeights are the weights of the clusters with jobs in the fair queue.
var fairWeights = map[string]int{"red": 1, "blue": 2, "green": 2}

// ordinary are priorities of one level: shares decide between their tasks.
var ordinary = []cluster.Priority{500, 450, 550}

// FairUsers returns the users of the fair queue. Their tasks differ in size, length and dominant resource. The tasks of
// ops are of a higher level of priority than those of the others, and come before them.
func FairUsers() []FairUser {
	return []FairUser{
		{
			Cluster: "red", Name: "ann", Demand: cluster.Demand{CPU: 200}, tasks: 12, priorities: ordinary,
			shortest: 4 * time.Minute, longest: 7 * time.Minute,
		},
		{
			Cluster: "red", Name: "bob", Demand: cluster.Demand{CPU: 250}, tasks: 8, priorities: ordinary,
			shortest: 5 * time.Minute, longest: 12 * time.Minute,
		},
		{
			Cluster: "red", Name: "ops", Demand: cluster.Demand{CPU: 250}, tasks: 8, Every: 11 * time.Minute,
			priorities: []cluster.Priority{700}, shortest: time.Minute, longest: 3 * time.Minute,
		},
		{
			Cluster: "blue", Name: "cat", Demand: cluster.Demand{CPU: 200, Memory: 640 * cluster.MiB}, tasks: 12,
			priorities: ordinary, shortest: 5 * time.Minute, longest: 11 * time.Minute,
		},
		{
			Cluster: "blue", Name: "dan", Demand: cluster.Demand{CPU: 200}, tasks: 12, gang: 3, priorities: ordinary,
			shortest: 7 * time.Minute, longest: 10 * time.Minute,
		},
		{
			Cluster: "green", Name: "eve", Demand: cluster.Demand{CPU: 200}, Devices: 1, tasks: 8, priorities: ordinary,
			shortest: 4 * time.Minute, longest: 10 * time.Minute,
		},
	}
}

// Weight returns the weight of the user's cluster.
func (u *FairUser) Weight() int { return fairWeights[u.Cluster] }

// Definition returns the task definition of the user's steps.
func (u *FairUser) Definition() *cluster.TaskDefinition {
	r := cluster.Resources{CPU: u.Demand.CPU, Memory: u.Demand.Memory}
	if u.Devices > 0 {
		r.Devices = []cluster.DeviceRequest{{Type: FairDeviceType, Count: u.Devices}}
	}
	return definition("fair-"+u.Name, r)
}

// Job returns the nth job of the user.
func (u *FairUser) Job(n int) *cluster.Job {
	job := &cluster.Job{
		Cluster: u.Cluster, Name: fmt.Sprintf("%s-%05d", u.Name, n), SubmittedBy: u.Name,
		Priority: u.priorities[n%len(u.priorities)],
	}
	work := cluster.Step{
		Name: "work", Definition: cluster.Ref{Name: "fair-" + u.Name, Version: 1}, Count: u.tasks, Idempotent: true,
		Retries: 2, TimeLimit: cluster.Duration(u.longest + time.Minute), Placement: cluster.Placement{Pool: FairPool},
	}
	if u.gang == 0 {
		job.Steps = []cluster.Step{work}
	}
	for i := 0; u.gang > 0 && i < u.tasks/u.gang; i++ {
		work.Name, work.Count, work.Gang = fmt.Sprintf("work-%d", i), u.gang, new(cluster.Gang)
		job.Steps = append(job.Steps, work)
	}
	job.SetDefaults()
	return job
}

// fairUserOf returns the user of a task in the fair queue, or nil.
func fairUserOf(parts cluster.TaskParts) *FairUser {
	for _, u := range FairUsers() {
		if name, _, _ := strings.Cut(parts.Owner, "-"); parts.Cluster == u.Cluster && name == u.Name {
			return &u
		}
	}
	return nil
}
