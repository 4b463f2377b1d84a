package planted

import (
	"fmt"
	"iter"
	clk "time"
)

const fine = 3 * clk.Second

func lookAtTheClock(at clk.Time) clk.Duration {
	_ = clk.Now()     // want "time.Now is not among the pure functions"
	clk.Sleep(fine)   // want "time.Sleep is not among the pure functions"
	_ = clk.Since(at) // want "time.Since is not among the pure functions"
	wait := clk.After // want "time.After is not among the pure functions"
	_ = wait
	_ = at.Local()       // want "time.Local reads the machine"
	_ = at.In(clk.Local) // want "time.Local reads the machine"
	var _ *clk.Timer     // want "time.Timer reads the machine"
	d, _ := clk.ParseDuration("3s")
	return at.Add(d).UTC().Sub(at) + fine
}

func pull(seq iter.Seq[int]) {
	next, stop := iter.Pull(seq) // want "iter.Pull reads the machine"
	_, _ = next()
	stop()
	_ = fmt.Sprintf("%d", 1)
}
