package fleet

import (
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// Reservation is what one attempt of a task holds on a node, from its placement until nothing of it is left there.
type Reservation struct {
	// UUID is that of the attempt, or another text that is unique among reservations. A task may have several attempts
	// that hold room (P6.3).
	UUID string
	Task cluster.TaskID
	// Definition is what the attempt runs. If it is unknown, the attempt counts with the tasks of its own generation.
	// It does so only while all waiting tasks of its version are of that generation.
	Definition cluster.Ref
	Node       string
	Demand     cluster.Demand
	// Ports are the port numbers that the attempt holds on the node.
	Ports []int
	// Labels are the owner's labels, which relations select by. Priority is the task's.
	Labels   cluster.Labels
	Priority int
	// Devices are the devices that the attempt holds.
	Devices []cluster.DeviceUse
	// Requests are the devices that its definition requests. Group is the concurrency group of its step, and JobGroup
	// that of its job, else "". All count for the limits of its cluster.
	Requests []cluster.DeviceRequest
	Group    string
	JobGroup string
	// User requested the job of the attempt: see cluster.Job.SubmittedBy.
	User string
	// Away are the relations of its placement that are Required and Away: they exclude other tasks.
	Away []cluster.Relation
	// Batch says that the attempt runs to an end: it is of a job. Started is when it started, zero if it has not, and
	// Limit is how long it may run from then on, 0 for no limit. Ended says that its programs have ended, and that it
	// holds its room until its node has cleaned up.
	Batch   bool
	Started time.Time
	Limit   time.Duration
	Ended   bool
}

// Holding returns what the attempt holds of the limits of its cluster.
func (r *Reservation) Holding() admission.Holding {
	h := admission.Holding{
		Task: r.Task, Demand: r.Demand, Devices: r.Requests, Group: r.Group, JobGroup: r.JobGroup, User: r.User,
	}
	var rest string
	h.Cluster, rest, _ = strings.Cut(string(r.Task), ".")
	if strings.Count(rest, ".") == stepDots {
		h.Job, _, _ = strings.Cut(rest, ".")
	}
	return h
}

// stepDots is the number of dots in the id of a job's task behind its cluster: <job>.<generation>.<step>.<index>.
const stepDots = 3

// ClusterOf returns the cluster in a task's id.
func ClusterOf(id cluster.TaskID) string {
	name, _, _ := strings.Cut(string(id), ".")
	return name
}

// TasksOf returns the name under which a task is counted. With a known definition of a service it is
// <cluster>.<service>, and the generation is returned apart. For a step of a job, and for an unknown definition, it is
// the task's id without its index.
func TasksOf(id cluster.TaskID, definition cluster.Ref) (tasks string, generation uint64, known cluster.Ref) {
	tasks = WithoutIndex(id)
	if definition.Name == "" {
		return tasks, 0, cluster.Ref{}
	}
	dot := strings.LastIndexByte(tasks, '.')
	if dot < 0 {
		return tasks, 0, cluster.Ref{}
	}
	for _, c := range []byte(tasks[dot+1:]) {
		if c < '0' || c > '9' { // a step
			return tasks, 0, cluster.Ref{}
		}
		generation = generation*10 + uint64(c-'0')
	}
	return tasks[:dot], generation, definition
}

// WithoutIndex returns a task's id without its index.
func WithoutIndex(id cluster.TaskID) string {
	if dot := strings.LastIndexByte(string(id), '.'); dot >= 0 {
		return string(id[:dot])
	}
	return string(id)
}
