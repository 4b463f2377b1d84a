package api

import "github.com/berthd/berth/internal/cluster"

// CheckWord is what is said to a check of type ttl of a task. It stands for the check's TTL: unless another comes in that time, the check
// fails.
type CheckWord struct {
	Word cluster.Word `json:"word"`
	// Message says why, at most cluster.MaxWordMessage bytes; it is shown where the word is not pass.
	Message string `json:"message,omitempty"`
}
