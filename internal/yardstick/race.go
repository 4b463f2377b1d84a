//go:build race

package yardstick

// raceSlowness is the slowdown of programs under the race detector, whose documentation says 2 to 20.
const raceSlowness = 5
