package credentials

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestTriesAreBounded(t *testing.T) {
	var j Joins
	now := time.Now()
	for i := range 3 * joinSources {
		j.failed(fmt.Sprint(i), now)
	}
	if len(j.tries) > joinSources {
		t.Errorf("%d addresses are remembered", len(j.tries))
	}
	if j.blocked("another", now) != 0 {
		t.Error("an address is slowed down that tried nothing")
	}
	j.failed("one more", now.Add(JoinTryDecay))
	if len(j.tries) > joinSources/2 {
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
	// A clock that is set back forgives nothing and blocks nobody for ever.
	for range 2 * MaxJoinTries {
		j.failed("a", now.Add(time.Hour))
	}
	if j.blocked("a", now) == 0 || j.blocked("a", now.Add(3*MaxJoinTries*JoinTryDecay)) != 0 {
		t.Error("a clock that was set back")
	}
}
