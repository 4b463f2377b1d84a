package api

// Trouble is an object that is not as it should be, with the cause and the next step.
type Trouble struct {
	// Object is the full reference of the object: "default/service/web", "node/n1", "task/default.web.1.0".
	Object string `json:"object"`
	// State is the state of the object, or one of the constants TroubleCrashLoop to TroubleHungry.
	State string `json:"state"`
	// Cause says in a sentence why the object is in trouble.
	Cause string `json:"cause,omitempty"`
	// Next is the command that shows more, or that ends the trouble. It names objects with their cluster.
	Next string `json:"next,omitempty"`
	// Task is the task whose output or explanation shows the cause; "" for none.
	Task TaskID `json:"task,omitempty"`
}

// States of troubles that are not states of the object.
const (
	TroubleCrashLoop     = string(ServiceCrashLooping)  // a task of the service ends soon after each start
	TroubleRolloutFailed = string(ServiceRolloutFailed) // the newest rollout of the service failed
	TroubleCanary        = string(ServiceCanary)        // healthy canaries wait to be promoted
	TroublePaused        = string(ServicePaused)        // a rollout is paused
	TroubleMisplaced     = "misplaced"                  // a task runs on a node where it should not be
	TroubleGivenUp       = "given-up"                   // a task gets no further attempt
	TroubleHungry        = "hungry"                     // a task needs more memory than it may use
	TroubleMissed        = "missed"                     // the last moment of the cron has no job
	TroubleNoMoments     = "no-moments"                 // the cron has no further moment
	TroublePressure      = "pressure"                   // the node is short of memory
	TroubleDiskFull      = "disk-full"                  // a disk of the node is full
	TroubleLostDevice    = "lost-device"                // a device is gone while a task holds it
	TroubleDrainHeld     = "drain-held"                 // the node is not empty long after its drain began
)
