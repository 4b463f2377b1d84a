package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/berthd/berth/internal/testkit"
)

// town is a directory for tests, by "service.cluster".
type town map[string]Service

func (d town) Service(ctx context.Context, _ netip.Addr, cluster, service string) (Service, error) {
	switch service {
	case "slow":
		<-ctx.Done()
		return Service{}, ctx.Err()
	case "untold":
		return Service{}, ErrUnknown
	}
	s, ok := d[service+"."+cluster]
	if !ok {
		return Service{Missing: true}, nil
	}
	return s, nil
}

func at(addr string, ports map[string]int) Address {
	return Address{Addr: netip.MustParseAddr(addr), Ports: ports}
}

var sample3 = town{
	"web.default": {Addresses: []Address{
		at("192.0.2.1", map[string]int{"http": 8080, "admin": 9000}), at("192.0.2.2", map[string]int{"http": 20001}),
		at("192.0.2.1", map[string]int{"http": 8081}),
	}},
	"empty.default": {},
	"six.default":   {Addresses: []Address{at("2001:db8::1", map[string]int{"http": 80})}},
	"many.default":  {Addresses: many(300)},
}

func many(n int) (list []Address) {
	for i := range n {
		list = append(list, at(fmt.Sprintf("10.0.%d.%d", i/256, i%256), map[string]int{"http": 80}))
	}
	return list
}

func anybody(netip.Addr) bool { return true }

// open serves on a listener on the loopback and returns its address.
func open(t *testing.T, s *Server, may func(netip.Addr) bool) netip.AddrPort {
	t.Helper()
	d, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx, d, may) }()
	t.Cleanup(func() { cancel(); <-ended })
	return d.Address()
}

func serveTown(t *testing.T, upstreams ...netip.AddrPort) netip.AddrPort {
	t.Helper()
	return open(t, New(Config{Directory: sample3, Upstreams: func() []netip.AddrPort { return upstreams }}), anybody)
}

// question returns a question; a size of 0 means without EDNS.
func question(t testing.TB, of string, typ dnsmessage.Type, size int) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(of)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: typ, Class: dnsmessage.ClassINET}},
	}
	if size > 0 {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(size, 0, false); err != nil {
			t.Fatal(err)
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	text, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ask sends a message and returns the answer.
func ask(t testing.TB, network string, where netip.AddrPort, text []byte) (m dnsmessage.Message, size int, err error) {
	t.Helper()
	c, err := net.Dial(network, where.String())
	if err != nil {
		return m, 0, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var answer []byte
	if network == "tcp" {
		if err := writeMessage(c, text); err != nil {
			return m, 0, err
		}
		if answer, err = readMessage(c); err != nil {
			return m, 0, err
		}
	} else {
		if _, err := c.Write(text); err != nil {
			return m, 0, err
		}
		answer = make([]byte, 1<<16)
		n, err := c.Read(answer)
		if err != nil {
			return m, 0, err
		}
		answer = answer[:n]
	}
	return m, len(answer), m.Unpack(answer)
}

// says returns a short form of the answer: its code, and its records in order.
func says(m dnsmessage.Message) string {
	var list []string
	for _, a := range m.Answers {
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			list = append(list, netip.AddrFrom4(b.A).String())
		case *dnsmessage.AAAAResource:
			list = append(list, netip.AddrFrom16(b.AAAA).String())
		case *dnsmessage.SRVResource:
			list = append(list, fmt.Sprintf("%s:%d", strings.TrimSuffix(b.Target.String(), "."), b.Port))
		case *dnsmessage.SOAResource:
			list = append(list, "SOA")
		}
		if a.Header.TTL != 5 {
			list = append(list, fmt.Sprintf("TTL %d", a.Header.TTL))
		}
	}
	slices.Sort(list)
	for _, a := range m.Authorities {
		if a.Header.Type == dnsmessage.TypeSOA {
			list = append(list, "no more for "+fmt.Sprint(a.Body.(*dnsmessage.SOAResource).MinTTL))
		}
	}
	return strings.TrimSpace(strings.TrimPrefix(m.RCode.String(), "RCode") + " " + strings.Join(list, " "))
}

// The answers to each name, over UDP and over TCP.
func TestAnswers(t *testing.T) {
	t.Parallel()
	where := serveTown(t)
	const a, aaaa, srv = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV
	for _, c := range []struct {
		name string
		typ  dnsmessage.Type
		want string
	}{
		{"web.default.berth.", a, "Success 192.0.2.1 192.0.2.2"},
		{"WEB.Default.berth.", a, "Success 192.0.2.1 192.0.2.2"},
		{"web.default.berth.", aaaa, "Success no more for 5"},
		{"web.default.berth.", dnsmessage.TypeTXT, "Success no more for 5"},
		{"six.default.berth.", aaaa, "Success 2001:db8::1"},
		{"six.default.berth.", a, "Success no more for 5"},
		{"empty.default.berth.", a, "Success no more for 5"},
		{"empty.default.berth.", srv, "Success no more for 5"},
		{"nobody.default.berth.", a, "NameError no more for 5"},
		{"nobody.default.berth.", srv, "NameError no more for 5"},
		{"web.other.berth.", a, "NameError no more for 5"},
		{"untold.default.berth.", a, "ServerFailure"},
		{
			"web.default.berth.", srv,
			"Success 192-0-2-1.web.default.berth:8080 192-0-2-1.web.default.berth:8081 " +
				"192-0-2-1.web.default.berth:9000 192-0-2-2.web.default.berth:20001",
		},
		{
			"_http._tcp.web.default.berth.", srv,
			"Success 192-0-2-1.web.default.berth:8080 192-0-2-1.web.default.berth:8081 " +
				"192-0-2-2.web.default.berth:20001",
		},
		{"_admin._udp.web.default.berth.", srv, "Success 192-0-2-1.web.default.berth:9000"},
		{"_none._tcp.web.default.berth.", srv, "Success no more for 5"},
		{"_http._tcp.web.default.berth.", a, "Success no more for 5"},
		{"_tcp.web.default.berth.", a, "Success no more for 5"},
		{"_http._sctp.web.default.berth.", srv, "NameError no more for 5"},
		{"192-0-2-1.web.default.berth.", a, "Success 192.0.2.1"},
		{"192-0-2-9.web.default.berth.", a, "NameError no more for 5"},
		{"_http._tcp.six.default.berth.", srv, "Success 2001-0db8-0000-0000-0000-0000-0000-0001.six.default.berth:80"},
		{"2001-0db8-0000-0000-0000-0000-0000-0001.six.default.berth.", aaaa, "Success 2001:db8::1"},
		{"github.com.default.berth.", a, "NameError no more for 5"},
		{"a.b.c.d.default.berth.", a, "NameError no more for 5"},
		{"under_score.default.berth.", a, "NameError no more for 5"},
		{"default.berth.", a, "Success no more for 5"},
		{"berth.", a, "Success no more for 5"},
		{"berth.", dnsmessage.TypeSOA, "Success SOA"},
		{"notberth.", a, "ServerFailure"}, // another zone, and no resolver
	} {
		for _, network := range []string{"udp", "tcp"} {
			m, _, err := ask(t, network, where, question(t, c.name, c.typ, 1232))
			if err != nil {
				t.Fatal(err)
			}
			if got := says(m); got != c.want {
				t.Errorf("%s %v over %s:\n got %q\nwant %q", c.name, c.typ, network, got, c.want)
			}
			if m.ID != 4711 || !m.Response || len(m.Questions) != 1 || m.Questions[0].Name.String() != c.name ||
				m.Truncated {
				t.Errorf("%s: the answer is %+v", c.name, m.Header)
			}
		}
	}
}

// SRV answers include the addresses of their targets.
func TestPlacesComeWithAddresses(t *testing.T) {
	t.Parallel()
	m, _, err := ask(t, "udp", serveTown(t), question(t, "_http._tcp.web.default.berth.", dnsmessage.TypeSRV, 1232))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range m.Additionals {
		if b, ok := r.Body.(*dnsmessage.AResource); ok {
			got = append(got, r.Header.Name.String()+" "+netip.AddrFrom4(b.A).String())
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"192-0-2-1.web.default.berth. 192.0.2.1", "192-0-2-2.web.default.berth. 192.0.2.2"},
		got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An answer is at most as long as the client, or all networks, allow, says whether it is complete, and has a new order
// each time.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	where := serveTown(t)
	for _, c := range []struct {
		network      string
		size, atMost int
		least        int
		truncated    bool
	}{
		{"udp", 0, 512, 25, true},
		{"udp", 1000, 1000, 50, true},
		{"udp", 60000, 1232, 70, true},
		{"tcp", 0, 65535, 256, false},
	} {
		m, n, err := ask(t, c.network, where, question(t, "many.default.berth.", dnsmessage.TypeA, c.size))
		if err != nil {
			t.Fatal(err)
		}
		if n > c.atMost || len(m.Answers) < c.least || m.Truncated != c.truncated {
			t.Errorf("%s with %d: %d bytes, %d addresses, truncated: %v; want %+v", c.network, c.size, n,
				len(m.Answers), m.Truncated, c)
		}
	}
	first := map[string]bool{}
	for range 20 {
		m, _, err := ask(t, "udp", where, question(t, "web.default.berth.", dnsmessage.TypeA, 0))
		if err != nil {
			t.Fatal(err)
		}
		first[netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A).String()] = true
	}
	if len(first) != 2 {
		t.Errorf("of two addresses %v come first", first)
	}
}

// An invalid question gets no answer, and one that cannot be answered gets an error code.
func TestBadQuestions(t *testing.T) {
	t.Parallel()
	s := New(Config{Directory: sample3, Upstreams: func() []netip.AddrPort { return nil }})
	with := func(change func(*dnsmessage.Message)) []byte {
		var m dnsmessage.Message
		if err := m.Unpack(question(t, "web.default.berth.", dnsmessage.TypeA, 1232)); err != nil {
			t.Fatal(err)
		}
		change(&m)
		text, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, c := range map[string]struct {
		text []byte
		want string // "" for no answer
	}{
		"nothing":       {nil, ""},
		"half a header": {make([]byte, 11), ""},
		"an answer":     {with(func(m *dnsmessage.Message) { m.Response = true }), ""},
		"an update":     {with(func(m *dnsmessage.Message) { m.OpCode = 5 }), "NotImplemented"},
		"no question":   {with(func(m *dnsmessage.Message) { m.Questions = nil }), "FormatError"},
		"two questions": {with(func(m *dnsmessage.Message) {
			m.Questions = append(m.Questions, m.Questions[0])
		}), "FormatError"},
		"half of one": {with(func(*dnsmessage.Message) {})[:20], "FormatError"},
		"another class": {with(func(m *dnsmessage.Message) {
			m.Questions[0].Class = dnsmessage.ClassCHAOS
		}), "Refused"},
		"a whole zone": {with(func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAXFR }), "Refused"},
		"another EDNS": {with(func(m *dnsmessage.Message) { m.Additionals[0].Header.TTL |= 1 << 16 }), "bad version"},
	} {
		got := s.answer(t.Context(), c.text, netip.MustParseAddr("127.0.0.1"), false)
		if (got == nil) != (c.want == "") {
			t.Errorf("%s: got %x", name, got)
		}
		if got == nil {
			continue
		}
		var m dnsmessage.Message
		if err := m.Unpack(got); err != nil {
			t.Fatal(err)
		}
		said := says(m)
		if len(m.Additionals) > 0 && m.Additionals[0].Header.ExtendedRCode(m.RCode) == badVersion {
			said = "bad version"
		}
		if said != c.want || len(m.Answers) > 0 {
			t.Errorf("%s: got %q, want %q", name, said, c.want)
		}
	}
}

// upstream is a resolver for other names.
type upstream struct {
	at    netip.AddrPort
	asked atomic.Int64
}

func newUpstream(t *testing.T, answer func(network string, q dnsmessage.Message) *dnsmessage.Message) *upstream {
	t.Helper()
	door, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{at: door.Address()}
	reply := func(network string, text []byte) []byte {
		var q dnsmessage.Message
		if err := q.Unpack(text); err != nil {
			return nil
		}
		u.asked.Add(1)
		m := answer(network, q)
		if m == nil {
			return nil
		}
		out, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return out
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := door.udp.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if out := reply("udp", buf[:n]); out != nil {
				_, _ = door.udp.WriteToUDPAddrPort(out, from)
			}
		}
	}()
	go func() {
		for {
			c, err := door.tcp.AcceptTCP()
			if err != nil {
				return
			}
			if text, err := readMessage(c); err == nil {
				if out := reply("tcp", text); out != nil {
					_ = writeMessage(c, out)
				}
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = door.Close() })
	return u
}

// answered answers a question with addresses.
func answered(q dnsmessage.Message, addrs ...string) *dnsmessage.Message {
	m := &dnsmessage.Message{Header: q.Header, Questions: q.Questions}
	m.Response = true
	for _, a := range addrs {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: header(q.Questions[0].Name, dnsmessage.TypeA),
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
		})
	}
	return m
}

// Other names are forwarded: to the next resolver if one does not answer, and over TCP if the client uses TCP. The
// result is an answer to the question, and not longer than the client allows.
func TestOtherNamesArePassedOn(t *testing.T) {
	t.Parallel()
	dead := newUpstream(t, func(string, dnsmessage.Message) *dnsmessage.Message { return nil })
	long := many(100)
	live := newUpstream(t, func(network string, q dnsmessage.Message) *dnsmessage.Message {
		switch of := q.Questions[0].Name.String(); {
		case of == "long.example.":
			m := answered(q)
			for _, a := range long {
				m.Answers = append(m.Answers, answered(q, a.Addr.String()).Answers...)
			}
			return m
		case of == "refused.example.":
			m := answered(q)
			m.RCode, m.Questions = dnsmessage.RCodeRefused, nil
			return m
		case of == "liar.example.":
			m := answered(q, "192.0.2.66")
			m.Questions = []dnsmessage.Question{
				{Name: dnsmessage.MustNewName("other.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
			}
			return m
		case network == "tcp":
			return answered(q, "192.0.2.99")
		}
		return answered(q, "192.0.2.98")
	})
	where := serveTown(t, dead.at, live.at)
	for _, c := range []struct{ network, name, want string }{
		{"udp", "host.example.", "Success 192.0.2.98"},
		{"tcp", "host.example.", "Success 192.0.2.99"},
		{"udp", "Refused.example.", "Success 192.0.2.98"},
		{"udp", "refused.example.", "Refused"},
		{"udp", "liar.example.", "ServerFailure"},
	} {
		m, _, err := ask(t, c.network, where, question(t, c.name, dnsmessage.TypeA, 0))
		if err != nil {
			t.Fatal(err)
		}
		if got := says(m); got != c.want || m.ID != 4711 {
			t.Errorf("%s over %s: got %q, want %q", c.name, c.network, got, c.want)
		}
	}
	if dead.asked.Load() == 0 {
		t.Error("the first resolver was not asked")
	}
	m, n, err := ask(t, "udp", where, question(t, "long.example.", dnsmessage.TypeA, 0))
	if err != nil || n > 512 || !m.Truncated {
		t.Errorf("a long answer: %d bytes, truncated: %v, %v", n, m.Truncated, err)
	}
	if m, _, err = ask(t, "tcp", where, question(t, "long.example.", dnsmessage.TypeA, 0)); err != nil ||
		len(m.Answers) != 100 {
		t.Errorf("a long answer over TCP: %d addresses, %v", len(m.Answers), err)
	}
	before := live.asked.Load()
	if _, _, err := ask(t, "udp", where, question(t, "nobody.default.berth.", dnsmessage.TypeA, 0)); err != nil ||
		live.asked.Load() != before {
		t.Errorf("a name of the zone was passed on, or %v", err)
	}
}

// A server that is named as its own resolver never forwards to itself.
func TestNothingIsPassedToItself(t *testing.T) {
	t.Parallel()
	var self atomic.Pointer[netip.AddrPort]
	s := New(Config{Directory: sample3, Upstreams: func() []netip.AddrPort { return []netip.AddrPort{*self.Load()} }})
	where := open(t, s, anybody)
	self.Store(&where)
	watch := testkit.NewStopwatch()
	m, _, err := ask(t, "udp", where, question(t, "host.example.", dnsmessage.TypeA, 0))
	if err != nil || says(m) != "ServerFailure" || watch.Elapsed() > upstreamTimeout {
		t.Errorf("got %q, %v after %v", says(m), err, watch.Elapsed())
	}
}

// Go's own resolver, as programs use it, finds services.
func TestResolverFindsServices(t *testing.T) {
	t.Parallel()
	where := serveTown(t)
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, where.String())
	}}
	hosts, err := r.LookupHost(t.Context(), "web.default.berth")
	slices.Sort(hosts)
	if err != nil || !slices.Equal(hosts, []string{"192.0.2.1", "192.0.2.2"}) {
		t.Errorf("got %v, %v", hosts, err)
	}
	_, places, err := r.LookupSRV(t.Context(), "http", "tcp", "web.default.berth")
	if err != nil || len(places) != 3 {
		t.Errorf("got %v, %v", places, err)
	}
	var missing *net.DNSError
	if _, err := r.LookupHost(t.Context(), "nobody.default.berth"); !errors.As(err, &missing) || !missing.IsNotFound {
		t.Errorf("a service that is not there: %v", err)
	}
	if hosts, err := r.LookupHost(t.Context(), "many.default.berth"); err != nil || len(hosts) != maxRecords {
		t.Errorf("many addresses: %d, %v", len(hosts), err)
	}
}

// Clients without permission get no answer, and a client over its limit does not block others.
func TestSharesAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Config{Directory: sample3, Upstreams: func() []netip.AddrPort { return nil }})
	local := netip.MustParseAddr("127.0.0.1")
	where := open(t, s, func(from netip.Addr) bool { return from == local })
	flood, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(where))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flood.Close() }()
	slow := question(t, "slow.default.berth.", dnsmessage.TypeA, 0)
	testkit.Eventually(t, 10*time.Second, func() error {
		for range 2 * maxQuestionsPerClient {
			_, _ = flood.Write(slow)
		}
		s.questions.mu.Lock()
		defer s.questions.mu.Unlock()
		if s.questions.of[local] != maxQuestionsPerClient || s.questions.sum != maxQuestionsPerClient {
			return fmt.Errorf("%d questions are being answered", s.questions.sum)
		}
		return nil
	})
	other := netip.MustParseAddr("127.0.0.2")
	if !s.questions.take(other) {
		t.Error("another address is kept away")
	}
	s.questions.release(other)

	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range maxConnsPerClient + 10 {
		c, err := net.Dial("tcp", where.String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		s.connections.mu.Lock()
		defer s.connections.mu.Unlock()
		if n := s.connections.of[local]; n != maxConnsPerClient {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	closed := 0
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			var slow net.Error
			if !errors.As(err, &slow) || !slow.Timeout() {
				closed++
			}
		}
	}
	if closed != 10 {
		t.Errorf("%d connections were closed, want 10", closed)
	}

	strangers := open(t, New(s.Config), func(netip.Addr) bool { return false })
	c, err := net.Dial("udp", strangers.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write(question(t, "web.default.berth.", dnsmessage.TypeA, 0))
	_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := c.Read(make([]byte, 512)); err == nil {
		t.Errorf("an unknown client got %d bytes", n)
	}
}

// The resolver file of tasks names only the agent, with the search domains and options of the node's file.
func TestResolverFile(t *testing.T) {
	t.Parallel()
	r := ParseResolver([]byte(
		"# by hand\nnameserver 127.0.0.53 ; stub\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver what\n" +
			"search example.com default.berth corp.example\noptions edns0 trust-ad\noptions ndots:2\nnameserver\n"))
	if got := fmt.Sprint(r.Servers,
		r.Outward()); got != "[127.0.0.53 192.0.2.53 fe80::1%eth0] [192.0.2.53 fe80::1%eth0]" {
		t.Errorf("servers: %s", got)
	}
	want := "# Written by Berth: the node's agent answers for *.berth and passes other names " +
		"on.\nnameserver 10.213.0.1\n" +
		"search default.berth example.com corp.example\noptions edns0 ndots:2\n"
	if diff := cmp.Diff(want, r.File(netip.MustParseAddr("10.213.0.1"), "default")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, n := range []string{
		"web.default.berth.", "_http._tcp.web.default.berth.", "192-0-2-1.web.default.berth.",
		"host.example.", ".",
	} {
		f.Add(question(f, n, dnsmessage.TypeSRV, 1232), true)
		f.Add(question(f, n, dnsmessage.TypeA, 0), false)
	}
	s := New(Config{Directory: sample3, Upstreams: func() []netip.AddrPort { return nil }})
	f.Fuzz(func(t *testing.T, text []byte, stream bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		answer := s.answer(ctx, text, netip.MustParseAddr("127.0.0.1"), stream)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || !m.Response || len(answer) > 1<<16-1 || !stream &&
			len(answer) > maxAnswerSize {
			t.Errorf("%x is answered with %x: %v", text, answer, err)
		}
	})
}
