package registry

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/egress"
)

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	for text, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, now.Add(time.Minute).Format(http.TimeFormat): time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got, ok := parseRetryAfter(text, now); !ok || got != want {
			t.Errorf("%q: got %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-1", "soon", "99999999999999"} {
		if got, ok := parseRetryAfter(text, now); ok {
			t.Errorf("%q: got %v, want none", text, got)
		}
	}
}

// One registry never has all slots, and a waiting pull gets the slot that another gives back.
func TestSlotsKeepOneForOtherRegistries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(3)
		take := func(ctx context.Context, host string, want error) {
			t.Helper()
			if err := s.Take(ctx, host, nil); !errors.Is(err, want) {
				t.Fatalf("take for %s: got error %v, want %v", host, err, want)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		take(t.Context(), "a", nil)
		take(t.Context(), "a", nil)
		take(ended, "a", context.Canceled) // it waits, although a slot is free
		take(t.Context(), "b", nil)
		take(ended, "c", context.Canceled)
		granted := make(chan error, 1)
		go func() { granted <- s.Take(t.Context(), "c", nil) }()
		synctest.Wait()
		s.Give("b")
		if err := <-granted; err != nil {
			t.Errorf("a waiting pull: got error %v", err)
		}
	})
}

// Failures in a row suspend a registry for longer, and a success clears them once the suspension is over.
func TestSuspensionsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Minute, egress.Policy{}, http.ProxyFromEnvironment)
		delay := func(failures int) time.Duration { return time.Second << failures }
		suspend := func(wanted, want time.Duration) {
			t.Helper()
			if got := c.Suspend("a", "busy", wanted, delay); got != want {
				t.Errorf("suspended for %v, want %v", got, want)
			}
		}
		suspend(0, time.Second)
		suspend(0, time.Second) // the same failure, seen by another pull
		time.Sleep(time.Second)
		suspend(0, 2*time.Second)
		suspend(time.Minute, time.Minute)
		if left, why := c.SuspendedFor("a"); left != time.Minute || why != "busy" {
			t.Errorf("suspended for %v because %q, want a minute, busy", left, why)
		}
		c.ClearFailures("a") // a pull that began before
		if left, _ := c.SuspendedFor("a"); left != time.Minute {
			t.Errorf("suspended for %v after an earlier answer, want a minute", left)
		}
		time.Sleep(time.Minute)
		c.ClearFailures("a")
		suspend(0, time.Second)
	})
}

// Users write the host of a registry. A request for it honours the policy, also where a proxy would make the
// connection.
func TestResolverAsksNoRefusedAddress(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	none := func(*http.Request) (*url.URL, error) { return nil, nil }
	proxy := http.ProxyURL(address)
	denied, err := egress.New(nil, []string{"198.51.100.0/24", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	away, err := egress.New(nil, []string{"198.51.100.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		policy  egress.Policy
		proxy   egress.ProxyFunc
		host    string
		refused bool
	}{
		"this machine":                                {egress.Policy{}, none, address.Host, false},
		"this machine, denied":                        {denied, none, address.Host, true},
		"metadata service":                            {egress.Policy{}, none, "169.254.169.254", true},
		"metadata service behind a proxy":             {egress.Policy{}, proxy, "169.254.169.254", true},
		"name of a metadata service behind a proxy":   {egress.Policy{}, proxy, "metadata.google.internal", true},
		"denied address behind a proxy":               {away, proxy, "198.51.100.7", true},
		"other address behind a proxy":                {away, proxy, "203.0.113.7", false},
		"loopback of the proxy":                       {egress.Policy{}, proxy, "127.0.0.9", true},
		"loopback of the proxy by a name that has it": {egress.Policy{}, proxy, "localhost", true},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			c := New(time.Minute, tc.policy, tc.proxy)
			_, _, err := c.Resolver(nil).Resolve(t.Context(), tc.host+"/app:1")
			if got := errors.Is(err, egress.ErrRefused); err == nil || got != tc.refused {
				t.Errorf("error %v, want a refusal: %v", err, tc.refused)
			}
			if tc.refused && IsConnectionError(err) {
				t.Errorf("%v would be tried again", err)
			}
			if got := len(asked) > 0; got == tc.refused {
				t.Errorf("asked %q", asked)
			}
		})
	}
}
