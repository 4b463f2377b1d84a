//go:build race

package testkit

// raceSlowness is how many times slower than usual a test runs under the race detector: 2 to 20 times, as its
// documentation says.
const raceSlowness = 5
