package api

import (
	"time"
)

// VolumeView is a volume that a node's agent keeps for tasks, or a folder that the node declares.
type VolumeView struct {
	Node string `json:"node"`
	// Name is that of a volume that the agent keeps, as "default/db/data": its cluster, its owner, and its own with the
	// task's index if it is the task's own ("default/db/data.0"). HostVolume is that of a folder that the node
	// declares; one of the two is empty.
	Name       string `json:"name,omitempty"`
	HostVolume string `json:"host_volume,omitempty"`
	Path       string `json:"path"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Pin        bool   `json:"pin,omitempty"`
	Sticky     bool   `json:"sticky,omitempty"`
	// Owner is the service or job that it belongs to, as "service/db"; empty once that is deleted, and of declared
	// folders.
	Owner string `json:"owner,omitempty"`
	// Used is what its files took when they were last counted, at Counted, which is zero where they were not. Size and
	// Free are of its file system, or of the quota that is set for it.
	Used    Bytes     `json:"used,omitempty"`
	Counted time.Time `json:"counted,omitzero"`
	Size    Bytes     `json:"size,omitempty"`
	Free    Bytes     `json:"free,omitempty"`
	// By are the tasks that use it now; Last is the one that used it last, until Until.
	By    []TaskID  `json:"by,omitempty"`
	Last  TaskID    `json:"last,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// VolumesReply lists volumes by node and name. Faults tells of nodes that could not be asked.
type VolumesReply struct {
	Items  []VolumeView `json:"items"`
	Faults []Fault      `json:"errors,omitempty"`
}

// VolumeRemove asks a node to remove a volume that its agent keeps.
type VolumeRemove struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Force removes also what belongs to a service or job that is there. What a task uses is never removed.
	Force bool `json:"force,omitempty"`
}
