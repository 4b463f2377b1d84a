package names

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxPlainAnswerSize is the largest answer over UDP without EDNS. maxAnswerSize is the largest with EDNS: it passes
	// all networks without fragmentation.
	maxPlainAnswerSize = 512
	maxAnswerSize      = 1232
	// maxRecords limits the addresses in an answer, over a connection, too.
	maxRecords = 256
	// badVersion is the answer to a version of EDNS that is not 0.
	badVersion dnsmessage.RCode = 16
)

// query is a received question.
type query struct {
	text   []byte // the whole message
	header dnsmessage.Header
	dnsmessage.Question
	from   netip.Addr
	stream bool // it came over TCP
	// edns means that the client supports EDNS; version and size are its version and its largest answer.
	edns    bool
	version int
	size    int
}

// answer returns the answer to a message, nil for none.
func (s *Server) answer(ctx context.Context, text []byte, from netip.Addr, stream bool) []byte {
	q := query{text: text, from: from, stream: stream, size: maxPlainAnswerSize}
	var p dnsmessage.Parser
	var err error
	if q.header, err = p.Start(text); err != nil || q.header.Response {
		return nil // not a valid question
	}
	if q.header.OpCode != 0 {
		return q.fail(dnsmessage.RCodeNotImplemented)
	}
	all, err := p.AllQuestions()
	if err != nil || len(all) != 1 {
		return q.fail(dnsmessage.RCodeFormatError)
	}
	q.Question = all[0]
	if !q.readExtra(&p) {
		return q.fail(dnsmessage.RCodeFormatError)
	}
	switch {
	case q.version != 0:
		return q.fail(badVersion)
	case q.Class != dnsmessage.ClassINET, q.Type == dnsmessage.TypeAXFR, q.Type == 251: // 251 is IXFR
		return q.fail(dnsmessage.RCodeRefused)
	}
	if rest, ours := zoned(q.Name.String()); ours {
		return s.ofZone(ctx, &q, rest)
	}
	return s.forward(ctx, &q)
}

// readExtra reads the additional records of the question.
func (q *query) readExtra(p *dnsmessage.Parser) bool {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return true
		}
		if err != nil {
			return false
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.version, q.size = true, int(h.TTL>>16&0xff), max(int(h.Class), maxPlainAnswerSize)
		}
		if p.SkipAdditional() != nil {
			return false
		}
	}
}

// zoned returns the labels of a name below the zone, and whether the name is in the zone.
func zoned(name string) (labels []string, ours bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == Zone {
		return nil, true
	}
	below, ok := strings.CutSuffix(name, "."+Zone)
	if !ok {
		return nil, false
	}
	return strings.Split(below, "."), true
}

// fail returns an answer with an error code.
func (q *query) fail(code dnsmessage.RCode) []byte {
	return q.pack(reply{code: code, outsideZone: true})
}

// reply is the content of an answer.
type reply struct {
	code        dnsmessage.RCode
	answers     []dnsmessage.Resource
	extra       []dnsmessage.Resource
	outsideZone bool // the name is outside the zone
}

// pack encodes as much of a reply as fits, and marks it as truncated if that is not all.
func (q *query) pack(r reply) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: q.header.ID, Response: true, OpCode: q.header.OpCode, Authoritative: !r.outsideZone,
		RecursionDesired:   q.header.RecursionDesired,
		RecursionAvailable: true, CheckingDisabled: q.header.CheckingDisabled, RCode: r.code & 0xf,
	}}
	if q.Type != 0 {
		m.Questions = []dnsmessage.Question{q.Question}
	}
	m.Answers = r.answers
	if len(r.answers) == 0 && !r.outsideZone {
		m.Authorities = []dnsmessage.Resource{authority()}
	}
	room := min(q.size, maxAnswerSize)
	if q.stream {
		room = 1<<16 - 1
	}
	var own []dnsmessage.Resource
	if q.edns {
		var h dnsmessage.ResourceHeader
		_ = h.SetEDNS0(maxAnswerSize, r.code, false) // the name is the root, which fits
		own = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	m.Additionals = append(own, r.extra...)
	text, err := m.Pack()
	for err == nil && len(text) > room {
		switch {
		case len(m.Additionals) > len(own): // the client can request them
			m.Additionals = own
		case len(m.Answers) > 0:
			m.Truncated = true
			m.Answers = m.Answers[:min(len(m.Answers)-1, len(m.Answers)*room/len(text))]
		default:
			return nil
		}
		text, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return text
}

// name joins labels to a name. All labels of valid questions fit.
func name(labels ...string) dnsmessage.Name {
	n, _ := dnsmessage.NewName(strings.Join(append(labels, Zone), ".") + ".")
	return n
}

func header(of dnsmessage.Name, t dnsmessage.Type) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: of, Type: t, Class: dnsmessage.ClassINET, TTL: uint32(TTL / time.Second)}
}

// authority returns the record that limits how long a negative answer may be cached.
func authority() dnsmessage.Resource {
	return dnsmessage.Resource{Header: header(name(), dnsmessage.TypeSOA), Body: &dnsmessage.SOAResource{
		NS: name("agent"), MBox: name("agent"), Serial: 1, Refresh: 60, Retry: 60, Expire: 60,
		MinTTL: uint32(TTL / time.Second),
	}}
}

// ofZone answers a question for a name of the zone; labels are those before the zone.
func (s *Server) ofZone(ctx context.Context, q *query, labels []string) []byte {
	n := len(labels)
	for _, l := range labels[max(0, n-2):] {
		if !label(l) {
			return q.pack(reply{code: dnsmessage.RCodeNameError})
		}
	}
	if n == 0 && q.Type == dnsmessage.TypeSOA {
		return q.pack(reply{answers: []dnsmessage.Resource{authority()}})
	}
	if n < 2 { // names below may exist
		return q.pack(reply{})
	}
	target, port := netip.Addr{}, ""
	switch n {
	case 2:
	case 3:
		if labels[0] == "_tcp" || labels[0] == "_udp" {
			break
		}
		if target = readTarget(labels[0]); !target.IsValid() {
			return q.pack(reply{code: dnsmessage.RCodeNameError})
		}
	case 4:
		var ok bool
		if port, ok = strings.CutPrefix(labels[0], "_"); ok && (labels[1] == "_tcp" || labels[1] == "_udp") {
			break
		}
		fallthrough
	default:
		return q.pack(reply{code: dnsmessage.RCodeNameError})
	}
	service, err := s.Directory.Service(ctx, q.from, labels[n-1], labels[n-2])
	switch {
	case err != nil:
		return q.fail(dnsmessage.RCodeServerFailure)
	case service.Missing:
		return q.pack(reply{code: dnsmessage.RCodeNameError})
	case n == 3 && !target.IsValid():
		return q.pack(reply{})
	case target.IsValid():
		if !slices.ContainsFunc(service.Addresses, func(a Address) bool { return a.Addr == target }) {
			return q.pack(reply{code: dnsmessage.RCodeNameError})
		}
		return q.pack(reply{answers: addressRecords(q.Name, q.Type, []Address{{Addr: target}})})
	}
	some := sample(service.Addresses)
	if q.Type == dnsmessage.TypeSRV {
		return q.pack(places(q.Name, labels[n-2], labels[n-1], port, some))
	}
	if n == 4 {
		some = nil // it has no addresses of its own
	}
	return q.pack(reply{answers: addressRecords(q.Name, q.Type, some)})
}

// label reports whether a label can be the name of a service or a cluster.
func label(l string) bool {
	if l == "" || len(l) > 63 || l[0] < 'a' || l[0] > 'z' || l[len(l)-1] == '-' {
		return false
	}
	return strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// sample returns the addresses in random order, at most maxRecords of them.
func sample(all []Address) []Address {
	n := len(all)
	if n == 0 {
		return nil
	}
	from, some := rand.IntN(n), make([]Address, min(n, maxRecords))
	for i := range some {
		some[i] = all[(from+i)%n]
	}
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some
}

// addressRecords returns records of the addresses of the type, each once.
func addressRecords(of dnsmessage.Name, t dnsmessage.Type, list []Address) (records []dnsmessage.Resource) {
	seen := map[netip.Addr]bool{}
	for _, a := range list {
		if seen[a.Addr] {
			continue
		}
		seen[a.Addr] = true
		switch {
		case a.Addr.Is4() && (t == dnsmessage.TypeA || t == dnsmessage.TypeALL):
			records = append(records,
				dnsmessage.Resource{Header: header(of, dnsmessage.TypeA), Body: &dnsmessage.AResource{A: a.Addr.As4()}})
		case a.Addr.Is6() && (t == dnsmessage.TypeAAAA || t == dnsmessage.TypeALL):
			records = append(records,
				dnsmessage.Resource{
					Header: header(of, dnsmessage.TypeAAAA),
					Body:   &dnsmessage.AAAAResource{AAAA: a.Addr.As16()},
				})
		}
	}
	return records
}

// places returns SRV records of the port, or of all ports for "", with the addresses of their targets.
func places(of dnsmessage.Name, service, in, port string, list []Address) (r reply) {
	type place struct {
		addr netip.Addr
		port int
	}
	seen, known := map[place]bool{}, map[netip.Addr]bool{}
	for _, a := range list {
		target := name(targetLabel(a.Addr), service, in)
		for _, p := range sortedPorts(a.Ports, port) {
			at := place{a.Addr, p}
			if seen[at] || p < 1 || p > 1<<16-1 {
				continue
			}
			seen[at] = true
			r.answers = append(r.answers, dnsmessage.Resource{
				Header: header(of, dnsmessage.TypeSRV),
				Body:   &dnsmessage.SRVResource{Priority: 1, Weight: 1, Port: uint16(p), Target: target},
			})
			if !known[a.Addr] {
				known[a.Addr] = true
				r.extra = append(r.extra, addressRecords(target, dnsmessage.TypeALL, []Address{a})...)
			}
		}
	}
	return r
}

// sortedPorts returns the numbers of the named port, or of all ports for "".
func sortedPorts(ports map[string]int, name string) (list []int) {
	for n, p := range ports { // order-free: sorted below
		if name == "" || n == name {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// targetLabel encodes an address as a label; readTarget decodes it.
func targetLabel(a netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(a.StringExpanded())
}

func readTarget(l string) netip.Addr {
	for _, between := range []string{".", ":"} {
		if a, err := netip.ParseAddr(strings.ReplaceAll(l, "-", between)); err == nil && targetLabel(a) == l {
			return a
		}
	}
	return netip.Addr{}
}
