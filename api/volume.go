package api

import (
	"time"
)

// VolumeView is a volume of a node's agent, or a host volume of the node.
type VolumeView struct {
	Node string `json:"node"`
	// Name is the name of a volume of the agent, such as "default/db/data": cluster, owner and volume. A sticky volume
	// ends with the task's index ("default/db/data.0"). HostVolume is the name of a host volume. One of the two is
	// empty.
	Name       string `json:"name,omitempty"`
	HostVolume string `json:"host_volume,omitempty"`
	Path       string `json:"path"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Pin        bool   `json:"pin,omitempty"`
	Sticky     bool   `json:"sticky,omitempty"`
	// Owner is the service or job of the volume, as "service/db". It is empty after the owner was deleted, and for host
	// volumes.
	Owner string `json:"owner,omitempty"`
	// Used is the size of its files when they were last counted, at Counted. Counted is zero if they never were. Size
	// and Free are those of its file system, or of its quota.
	Used    Bytes     `json:"used,omitempty"`
	Counted time.Time `json:"counted,omitzero"`
	Size    Bytes     `json:"size,omitempty"`
	Free    Bytes     `json:"free,omitempty"`
	// By are the tasks that use it now. Last is the last task that used it, until Until.
	By    []TaskID  `json:"by,omitempty"`
	Last  TaskID    `json:"last,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// VolumesReply lists volumes by node and name. Faults are the nodes without an answer.
type VolumesReply struct {
	Items  []VolumeView `json:"items"`
	Faults []Fault      `json:"errors,omitempty"`
}

// VolumeRemove asks a node to remove a volume of its agent.
type VolumeRemove struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Force also removes a volume whose service or job exists. A volume in use is never removed.
	Force bool `json:"force,omitempty"`
}
