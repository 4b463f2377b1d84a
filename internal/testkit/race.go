//go:build race

package testkit

// raceSlowness is the slowdown of tests under the race detector, whose documentation says 2 to 20.
const raceSlowness = 5
