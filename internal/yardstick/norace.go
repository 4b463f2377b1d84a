//go:build !race

package yardstick

const raceSlowness = 1
