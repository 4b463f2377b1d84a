package api

// CheckWord is what is said to a check of type ttl of a task. It stands for the check's TTL: unless another comes in
// that time, the check fails.
type CheckWord struct {
	Word Word `json:"word"`
	// Message says why, at most 500 bytes; it is shown where the word is not pass.
	Message string `json:"message,omitempty"`
}
