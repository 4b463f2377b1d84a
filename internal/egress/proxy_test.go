package egress_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/berthd/berth/internal/egress"
)

// names is a resolver that knows these alone.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) (out []netip.Addr, err error) {
	for _, addr := range n[host] {
		out = append(out, netip.MustParseAddr(addr))
	}
	if len(out) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

// A proxy gets no request that the policy refuses: neither for an address in any form, nor for a name with such an
// address. The proxy resolves a name that only it can resolve, unless the name is known to have such an address.
func TestLimitProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	known := names{
		"public.example": {"198.51.100.7", "2001:db8::7"}, "private.example": {"10.1.2.3"},
		"own.example": {"127.0.0.1"}, "one-of-two.example": {"198.51.100.7", "169.254.169.254"},
	}
	private := policy(t, nil, []string{"10.0.0.0/8"})
	for _, tt := range []struct {
		name    string
		policy  egress.Policy
		host    string
		refused bool
	}{
		{"an address", egress.Policy{}, "198.51.100.7", false},
		{"a name", egress.Policy{}, "public.example", false},
		{"a private name", egress.Policy{}, "private.example", false},
		{"a name of the proxy", egress.Policy{}, "only-there.example", false},
		{"a name that ends in a digit", egress.Policy{}, "registry.zone1", false},
		{"a metadata service", egress.Policy{}, "169.254.169.254", true},
		{"a metadata service of version 6", egress.Policy{}, "[fd00:ec2::254]", true},
		{"a metadata service, mapped", egress.Policy{}, "[::ffff:169.254.169.254]", true},
		{"a denied address", private, "10.1.2.3", true},
		{"a denied name", private, "private.example", true},
		{"a name of the own machine", egress.Policy{}, "own.example", true},
		{"a name with one such address", egress.Policy{}, "one-of-two.example", true},
		{"a name of a metadata service", egress.Policy{}, "metadata.google.internal", true},
		{"the same in capitals, with a dot", egress.Policy{}, "Metadata.Google.Internal.", true},
		{"localhost", egress.Policy{}, "localhost", true},
		{"a name below localhost", egress.Policy{}, "a.localhost", true},
		{"a number", egress.Policy{}, "2852039166", true},
		{"a hexadecimal number", egress.Policy{}, "0xA9FEA9FE", true},
		{"octal numbers", egress.Policy{}, "0251.0376.0251.0376", true},
		{"less than four numbers", egress.Policy{}, "169.16689662", true},
		{"digits outside of ASCII", egress.Policy{}, "\uff11\uff16\uff19\u3002254\u3002169\u3002254", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked = nil
			transport := policy(t, []string{"127.0.0.1"}, nil).Transport(time.Minute) // the proxy's
			transport.Proxy = tt.policy.LimitProxy(http.ProxyURL(at), known)
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Get("http://" + tt.host + "/")
			if err == nil {
				resp.Body.Close()
			}
			if got := errors.Is(err, egress.ErrRefused); got != tt.refused || !got && err != nil {
				t.Errorf("error %v, want a refusal: %v", err, tt.refused)
			}
			if got := len(asked) > 0; got == tt.refused {
				t.Errorf("the proxy got requests for %q", asked)
			}
		})
	}
}

// Without a proxy the dialer checks the addresses, and an error of the choice stays.
func TestLimitProxyWithoutOne(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://169.254.169.254/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, errors.New("no choice")} {
		choose := func(*http.Request) (*url.URL, error) { return nil, want }
		if proxy, err := (egress.Policy{}).LimitProxy(choose, names{})(req); proxy != nil || !errors.Is(err, want) {
			t.Errorf("%v %v, want no proxy and the error %v", proxy, err, want)
		}
	}
}
