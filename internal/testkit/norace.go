//go:build !race

package testkit

const raceSlowness = 1
