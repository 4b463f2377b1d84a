//go:build race

package sim

import "time"

// seedCount is the number of random stories of a plain run. The race detector makes each ten times as slow. The build
// without it runs all stories.
const seedCount = 100

// dayLength is the part of a day of CI that a plain run simulates.
const dayLength = 30 * time.Minute
