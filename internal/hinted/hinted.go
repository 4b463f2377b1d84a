// Package hinted has errors that carry advice: what happened, and what to do next.
package hinted

// Error is an error with what to do about it.
type Error struct {
	Err  error
	Hint string
}

// Error returns the error's text, without the hint.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *Error) Unwrap() error { return e.Err }
