package credentials

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestTriesAreBounded(t *testing.T) {
	var j JoinLimiter
	now := time.Now()
	for i := range 3 * maxJoinSources {
		j.addFailure(fmt.Sprint(i), now)
	}
	if len(j.tries) > maxJoinSources {
		t.Errorf("%d addresses are remembered", len(j.tries))
	}
	if j.retryAfter("another", now) != 0 {
		t.Error("an address is slowed down that tried nothing")
	}
	j.addFailure("one more", now.Add(JoinTryDecay))
	if len(j.tries) > maxJoinSources/2 {
		t.Errorf("%d addresses are remembered after all were forgiven but one", len(j.tries))
	}
	for remote, want := range map[string]string{
		"192.0.2.1:99": "192.0.2.1", "[::ffff:192.0.2.1]:99": "::ffff:192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:99": "2001:db8:1:2::/64", "[fe80::1%eth0]:99": "fe80::/64",
	} {
		if got := sourceOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("tries of %s count for %s, want %s", remote, got, want)
		}
	}
	// A clock that is set back resets no limit and blocks no client forever.
	for range 2 * MaxJoinTries {
		j.addFailure("a", now.Add(time.Hour))
	}
	if j.retryAfter("a", now) == 0 || j.retryAfter("a", now.Add(3*MaxJoinTries*JoinTryDecay)) != 0 {
		t.Error("a clock that was set back")
	}
}
