package cluster

// ServiceState is the state of a service, which follows from its spec and its tasks. No record holds it.
type ServiceState string

// States of a service.
const (
	// ServiceHealthy says that all tasks of the newest generation are healthy and no other is left.
	ServiceHealthy ServiceState = "healthy"
	// ServiceStarting says that tasks are on their way. None had trouble, except that checks may have failed less often
	// than their fail_after says.
	ServiceStarting ServiceState = "starting"
	// ServiceRollingOut says that tasks of an older generation are still there.
	ServiceRollingOut ServiceState = "rolling-out"
	// ServiceCanary says that canaries are healthy and wait to be promoted.
	ServiceCanary ServiceState = "canary"
	// ServicePaused says that tasks of an older version are there, and the rollout is paused.
	ServicePaused ServiceState = "paused"
	// ServiceRolloutFailed says that tasks of an older version are there, and the rollout goes no further.
	ServiceRolloutFailed ServiceState = "rollout-failed"
	ServiceCrashLooping  ServiceState = "crash-looping" // a task ends soon after each start
	// ServiceDegraded says that some tasks are not healthy, or that checks of all have begun to fail.
	ServiceDegraded ServiceState = "degraded"
	ServiceFailing  ServiceState = "failing" // no task is healthy
	ServiceStopped  ServiceState = "stopped"
	ServiceStopping ServiceState = "stopping"
	ServiceDeleting ServiceState = "deleting"
)

// Values returns every ServiceState, in the order of the constants.
func (ServiceState) Values() []ServiceState {
	return []ServiceState{
		ServiceHealthy, ServiceStarting, ServiceRollingOut, ServiceCanary, ServicePaused, ServiceRolloutFailed,
		ServiceCrashLooping, ServiceDegraded, ServiceFailing, ServiceStopped, ServiceStopping, ServiceDeleting,
	}
}

// JobState is the state of a job, which follows from its spec and its tasks. No record holds it.
type JobState string

// States of a job.
const (
	JobPending   JobState = "pending" // nothing of the job has begun
	JobRunning   JobState = "running"
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
	JobCancelled JobState = "cancelled"
	JobDeleting  JobState = "deleting"
)

// Values returns every JobState, in the order of the constants.
func (JobState) Values() []JobState {
	return []JobState{JobPending, JobRunning, JobSucceeded, JobFailed, JobCancelled, JobDeleting}
}

// Ended reports whether the job will not change any more.
func (s JobState) Ended() bool { return s == JobSucceeded || s == JobFailed || s == JobCancelled }
