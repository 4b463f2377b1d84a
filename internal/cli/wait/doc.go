// Package wait waits until objects reach a state, and shows the progress.
package wait
