package egress_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/egress"
)

func policy(t *testing.T, allow, deny []string) egress.Policy {
	t.Helper()
	p, err := egress.New(allow, deny)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheck(t *testing.T) {
	var standard egress.Policy
	loopback := egress.Policy{}.WithLoopback()
	extended := policy(t, []string{"127.0.0.0/8", "169.254.169.254"}, []string{"10.0.0.0/8", "127.0.0.53", "fd00::/8"})
	for _, tt := range []struct {
		name    string
		policy  egress.Policy
		addr    string
		refused string
	}{
		{"public", standard, "192.0.2.7", ""},
		{"private", standard, "10.1.2.3", ""},
		{"private of version 6", standard, "fd12:3456::1", ""},
		{"loopback", standard, "127.8.0.1", "loopback"},
		{"loopback of version 6", standard, "::1", "loopback"},
		{"loopback, mapped", standard, "::ffff:127.0.0.1", "loopback"},
		{"unspecified", standard, "0.0.0.0", "this machine"},
		{"unspecified of version 6", standard, "::", "this machine"},
		{"link-local", standard, "169.254.169.254", "link-local"},
		{"link-local of version 6", standard, "fe80::1", "link-local"},
		{"link-local, mapped", standard, "::ffff:169.254.169.254", "link-local"},
		{"link-local behind NAT64", standard, "64:ff9b::a9fe:a9fe", "link-local"},
		{"link-local by 6to4", standard, "2002:a9fe:a9fe::1", "link-local"},
		{"link-local, compatible", standard, "::a9fe:a9fe", "link-local"},
		{"link-local behind NAT64 of the network, /48", standard, "64:ff9b:1:a9fe:a9:fe00::", "link-local"},
		{"link-local behind NAT64 of the network, /56", standard, "64:ff9b:1:a9:fe:a9fe::", "link-local"},
		{"link-local behind NAT64 of the network, /64", standard, "64:ff9b:1::a9:fea9:fe00:0", "link-local"},
		{"link-local behind NAT64 of the network, /96", standard, "64:ff9b:1::a9fe:a9fe", "link-local"},
		{"public behind NAT64 of the network, /48", standard, "64:ff9b:1:c633:64:700::", ""},
		{"public behind NAT64 of the network, /96", standard, "64:ff9b:1::c633:6407", ""},
		{"link-local by Teredo", standard, "2001:0:c633:6407::5601:5601", "link-local"},
		{"a server of Teredo that is link-local", standard, "2001:0:a9fe:a9fe::39cc:9bf8", "link-local"},
		{"public by Teredo", standard, "2001:0:c633:6407::39cc:9bf8", ""},
		{"link-local by ISATAP", standard, "2001:db8::5efe:a9fe:a9fe", "link-local"},
		{"link-local by ISATAP, unique", standard, "2001:db8::200:5efe:a9fe:a9fe", "link-local"},
		{"link-local by ISATAP below 6to4", standard, "2002:c633:6407::5efe:a9fe:a9fe", "link-local"},
		{"public by ISATAP", standard, "2001:db8::5efe:c633:6407", ""},
		{"public by 6to4", standard, "2002:c633:6407::1", ""},
		{"denied by Teredo", extended, "2001:0:c633:6407::f5fe:fefe", "denied by the operator"},
		{"denied by ISATAP", extended, "2001:db8::5efe:a01:101", "denied by the operator"},
		{"denied by 6to4", extended, "2002:a01:101::1", "denied by the operator"},
		{"denied behind NAT64 of the network", extended, "64:ff9b:1::a01:101", "denied by the operator"},
		{"Amazon EC2", standard, "fd00:ec2::254", "Amazon EC2"},
		{"Google Compute Engine", standard, "fd20:ce::254", "Google Compute Engine"},
		{"Alibaba Cloud", standard, "100.100.100.200", "Alibaba Cloud"},
		{"Azure", standard, "168.63.129.16", "Azure"},
		{"Oracle Cloud", standard, "192.0.0.192", "Oracle Cloud"},
		{"multicast", standard, "224.0.0.1", "multicast"},
		{"loopback that is allowed", loopback, "127.0.0.1", ""},
		{"version 6 of it", loopback, "::1", ""},
		{"unspecified that is allowed with it", loopback, "0.0.0.0", ""},
		{"a network that is none", loopback, "0.1.2.3", "this machine"},
		{"link-local beside what is allowed", loopback, "169.254.169.254", "link-local"},
		{"denied by the operator", extended, "10.9.9.9", "denied by the operator"},
		{"denied, mapped", extended, "::ffff:10.9.9.9", "denied by the operator"},
		{"denied within what is allowed", extended, "127.0.0.53", "denied by the operator"},
		{"allowed out of what is built in", extended, "169.254.169.254", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.policy.Check(netip.MustParseAddr(tt.addr))
			if got := errors.Is(err, egress.ErrRefused); got != (tt.refused != "") || err != nil &&
				!strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v, want %q", tt.addr, err, tt.refused)
			}
		})
	}
}

func TestNewNamesAllFaults(t *testing.T) {
	_, err := egress.New([]string{"10.0.0.0/8", "here"}, []string{"10.0.0.0/99"})
	if err == nil || !strings.Contains(err.Error(), `allow: "here"`) ||
		!strings.Contains(err.Error(), `deny: "10.0.0.0/99"`) {
		t.Errorf("%v", err)
	}
}

// A name is judged by what it resolves to, a redirect as the first address is, and a proxy is not asked.
func TestTransport(t *testing.T) {
	asked := 0
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer inner.Close()
	t.Setenv("HTTP_PROXY", inner.URL)
	t.Setenv("http_proxy", inner.URL)
	port := inner.URL[strings.LastIndex(inner.URL, ":"):]
	for name, address := range map[string]string{
		"address": inner.URL, "name": "http://localhost" + port, "mapped": "http://[::ffff:127.0.0.1]" +
			port, "unspecified": "http://[::]" + port,
	} {
		t.Run(name, func(t *testing.T) {
			transport := egress.Policy{}.Transport(time.Minute)
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Get(address)
			if err == nil {
				resp.Body.Close()
			}
			if !errors.Is(err, egress.ErrRefused) {
				t.Errorf("%v, want a refusal", err)
			}
		})
	}
	away := httptest.NewServer(
		http.RedirectHandler(strings.Replace(inner.URL, "127.0.0.1", "127.0.0.2", 1), http.StatusFound))
	defer away.Close()
	transport := policy(t, []string{"127.0.0.1"}, nil).Transport(time.Minute)
	defer transport.CloseIdleConnections()
	if transport.Proxy != nil {
		t.Error("a proxy would resolve names by itself")
	}
	resp, err := (&http.Client{Transport: transport}).Get(away.URL)
	if err == nil {
		resp.Body.Close()
	}
	if _, isURL := errors.AsType[*url.Error](err); !isURL || !errors.Is(err, egress.ErrRefused) {
		t.Errorf("redirect: %v, want a refusal", err)
	}
	if asked != 0 {
		t.Errorf("the server was asked %d times", asked)
	}
}
