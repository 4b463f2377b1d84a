// Package wait waits until objects are in a state, and shows the progress.
package wait
