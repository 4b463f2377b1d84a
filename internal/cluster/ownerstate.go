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

// StepState is the state of a step of a job, which follows from the job's spec and its tasks. No record holds it.
type StepState string

// States of a step.
const (
	StepWaiting   StepState = "waiting" // steps that it needs have not ended
	StepPending   StepState = "pending" // nothing of it has begun
	StepRunning   StepState = "running"
	StepSucceeded StepState = "succeeded"
	StepFailed    StepState = "failed"
	StepSkipped   StepState = "skipped" // a step that it needs did not succeed
	StepCancelled StepState = "cancelled"
)

// Values returns every StepState, in the order of the constants.
func (StepState) Values() []StepState {
	return []StepState{
		StepWaiting, StepPending, StepRunning, StepSucceeded, StepFailed, StepSkipped, StepCancelled,
	}
}

// Ended reports whether the step will not change any more.
func (s StepState) Ended() bool {
	return s == StepSucceeded || s == StepFailed || s == StepSkipped || s == StepCancelled
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
