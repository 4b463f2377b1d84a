//go:build !race

package sim

// seedCount is the number of random stories of a plain run.
const seedCount = 1000
