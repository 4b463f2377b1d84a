//go:build !race

package sim

import "time"

// seedCount is the number of random stories of a plain run.
const seedCount = 1000

// dayLength is the part of a day of CI that a plain run simulates.
const dayLength = time.Hour
