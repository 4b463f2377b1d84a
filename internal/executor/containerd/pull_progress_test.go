package containerd

import "testing"

// TestFailureIsShownDuringTheNextTry: the status keeps the cause until the next try has got further.
func TestFailureIsShownDuringTheNextTry(t *testing.T) {
	const failure = "pulling a:1: refused; trying again after 1s"
	p := &pull{displayName: "a:1"}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { p.setState("") }, "pulling a:1"},
		{func() { p.setFailure(failure) }, failure},
		{func() { p.setState("") }, failure},
		{func() { p.setState("waits to pull a:1") }, "waits to pull a:1"},
	} {
		step.do()
		if got := p.progress(t.Context()); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}
