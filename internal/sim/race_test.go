//go:build race

package sim

// seeds is how many random stories a plain run tells. The race detector makes them ten times as dear; all of them are
// told without it.
const seeds = 100
