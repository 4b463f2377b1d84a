//go:build race

package sim

// seedCount is the number of random stories of a plain run. The race detector makes each ten times as slow. The build
// without it runs all stories.
const seedCount = 100
