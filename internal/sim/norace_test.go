//go:build !race

package sim

// seeds is how many random stories a plain run tells.
const seeds = 1000
