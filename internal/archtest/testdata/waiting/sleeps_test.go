package planted

import (
	"testing"
	bubble "testing/synctest"
	clk "time"

	"github.com/berthd/berth/internal/pause"
)

func TestSleeps(t *testing.T) {
	clk.Sleep(1)                  // want "time.Sleep outside synctest.Test"
	_ = pause.For(t.Context(), 1) // want "pause.For outside synctest.Test"
	<-clk.After(1)                // want "a bare receive from a timer"
	done := make(chan int)
	select {
	case <-done:
		<-clk.Tick(1) // want "a bare receive from a timer"
	case <-clk.After(clk.Second): // a deadline
		t.Fatal("late")
	}
	for range 3 {
		select {
		case <-done:
		case <-clk.After(1): // want "a select that sleeps"
		}
		select {
		case <-done:
		case <-clk.After(1): // want "a select that sleeps"
			continue
		}
	}
	select {
	case <-clk.Tick(1): // want "a select that sleeps"
	}
	timer := clk.NewTimer(1)
	select {
	case <-done:
	case <-timer.C: // want "a select that sleeps"
	}
	select {
	case <-done:
	case <-clk.After(1): // in-bubble: marked like any other
	}
	bubble.Test(t, func(*testing.T) {
		clk.Sleep(1)
		<-clk.After(1)
	})
	go func() {
		clk.Sleep(1) // want "time.Sleep outside synctest.Test"
	}()
}

func helper() {
	clk.Sleep(1) // in-bubble: only TestSleeps calls it
}
