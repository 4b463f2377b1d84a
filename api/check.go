package api

// CheckWord is a report to a TTL check of a task. It is valid for the check's TTL. The check fails if no further report
// arrives in that time.
type CheckWord struct {
	Word Word `json:"word"`
	// Message gives the reason, at most 500 bytes. It is shown unless the result is pass.
	Message string `json:"message,omitempty"`
}
