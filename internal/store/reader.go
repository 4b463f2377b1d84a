package store

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// reader reads a record in the very form that Encode writes: the fields in the order of the type, no white space. A
// record in any other form it finds odd, and leaves to encoding/json, which reads the same from what both read. It is
// for the records that a store has most of: reflection takes several times as long.
type reader struct {
	in  []byte
	at  int
	odd bool
	// names are texts that were read lately: a record says the same of many tasks.
	names [8]string
}

// record reads what is left of the input into a record. It returns false for a type that it does not know and for what
// is odd; the record then holds anything.
func (r *reader) record(into any) bool {
	switch v := into.(type) {
	case *cluster.Observed:
		r.observed(v)
	case *cluster.Desired:
		r.desired(v)
	case *cluster.Outcome:
		r.outcome(v)
	case *cluster.PlanRecord:
		r.plan(v)
	case *cluster.EventBatch:
		r.events(v)
	default:
		return false
	}
	return !r.odd && r.at == len(r.in)
}

// open begins an object.
func (r *reader) open() { r.skip('{') }

// close ends an object, of which all fields were read.
func (r *reader) close() { r.skip('}') }

func (r *reader) skip(c byte) {
	if !r.next(c) {
		r.odd = true
	}
}

// next passes over a byte if it is the next.
func (r *reader) next(c byte) bool {
	if r.odd || r.at >= len(r.in) || r.in[r.at] != c {
		return false
	}
	r.at++
	return true
}

// has passes over the name of a field if it is the next.
func (r *reader) has(name string) bool {
	if r.odd {
		return false
	}
	at, n := r.at, len(name)
	if r.in[at-1] != '{' { // something was read before
		if at >= len(r.in) || r.in[at] != ',' {
			return false
		}
		at++
	}
	if len(r.in) < at+n+3 || r.in[at] != '"' || r.in[at+n+1] != '"' || r.in[at+n+2] != ':' ||
		string(r.in[at+1:at+1+n]) != name {
		return false
	}
	r.at = at + n + 3
	return true
}

// quoted passes over a text and returns it with its quotes; plain says that it stands for itself.
func (r *reader) quoted() (raw []byte, plain bool) {
	from := r.at
	if r.skip('"'); r.odd {
		return nil, false
	}
	plain = true
	for ; r.at < len(r.in); r.at++ {
		switch c := r.in[r.at]; {
		case c == '"':
			r.at++
			return r.in[from:r.at], plain
		case c == '\\':
			plain = false
			r.at++
		case c < ' ':
			r.odd = true
			return nil, false
		case c >= 0x80:
			plain = false
		}
	}
	r.odd = true
	return nil, false
}

// text reads a text.
func (r *reader) text() (s string) {
	raw, plain := r.quoted()
	switch {
	case r.odd:
	case plain:
		return string(raw[1 : len(raw)-1])
	default:
		var err error
		s, err = unquote(raw)
		r.odd = err != nil
	}
	return s
}

func unquote(raw []byte) (s string, err error) {
	err = json.Unmarshal(raw, &s)
	return s, err
}

// name reads a text of a few that come again and again.
func (r *reader) name() string {
	from := r.at
	raw, plain := r.quoted()
	if r.odd || !plain || len(raw) == 2 {
		r.at = from
		return r.text()
	}
	raw = raw[1 : len(raw)-1]
	if word, ok := wellKnown(raw); ok {
		return word
	}
	known := &r.names[(len(raw)+int(raw[0])+int(raw[len(raw)-1]))%len(r.names)]
	if *known != string(raw) {
		*known = string(raw)
	}
	return *known
}

// wellKnown returns the words of which nearly all records have some.
func wellKnown(raw []byte) (word string, ok bool) {
	switch string(raw) {
	case string(cluster.KindJob):
		return string(cluster.KindJob), true
	case string(cluster.KindService):
		return string(cluster.KindService), true
	case string(cluster.StatePreparing):
		return string(cluster.StatePreparing), true
	case string(cluster.StateStarting):
		return string(cluster.StateStarting), true
	case string(cluster.StateRunning): // of a container too
		return string(cluster.StateRunning), true
	case string(cluster.StateStopping):
		return string(cluster.StateStopping), true
	case string(cluster.StateSucceeded):
		return string(cluster.StateSucceeded), true
	case string(cluster.StateFailed):
		return string(cluster.StateFailed), true
	case string(cluster.ContainerWaiting):
		return string(cluster.ContainerWaiting), true
	case string(cluster.ContainerExited):
		return string(cluster.ContainerExited), true
	case string(cluster.HealthUnknown):
		return string(cluster.HealthUnknown), true
	case string(cluster.HealthHealthy):
		return string(cluster.HealthHealthy), true
	case string(cluster.StopMandatory):
		return string(cluster.StopMandatory), true
	}
	return "", false
}

// unsigned reads a number. Numbers of 19 digits and more are odd.
func (r *reader) unsigned() (n uint64) {
	from := r.at
	for ; r.at < len(r.in) && isDigit(r.in[r.at]); r.at++ {
		n = n*10 + uint64(r.in[r.at]-'0')
	}
	digits := r.at - from
	if digits == 0 || digits > 18 || digits > 1 && r.in[from] == '0' || r.at == len(r.in) || r.in[r.at] == '.' ||
		r.in[r.at]|0x20 == 'e' {
		r.odd = true
	}
	return n
}

func (r *reader) number() int {
	if r.next('-') {
		return -int(r.unsigned())
	}
	return int(r.unsigned())
}

// truth reads true or false.
func (r *reader) truth() bool {
	if r.word("true") {
		return true
	}
	if !r.word("false") {
		r.odd = true
	}
	return false
}

// word passes over a word if it is the next.
func (r *reader) word(w string) bool {
	if r.odd || len(r.in) < r.at+len(w) || string(r.in[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

func (r *reader) time() (t time.Time) {
	if raw, _ := r.quoted(); !r.odd {
		r.odd = t.UnmarshalJSON(raw) != nil
	}
	return t
}

func (r *reader) duration() (d cluster.Duration) {
	if raw, _ := r.quoted(); !r.odd {
		r.odd = d.UnmarshalJSON(raw) != nil
	}
	return d
}

// ref reads a reference to a task definition.
func (r *reader) ref() (ref cluster.Ref) {
	raw, plain := r.quoted()
	if r.odd = r.odd || !plain; !r.odd {
		r.odd = ref.UnmarshalText(raw[1:len(raw)-1]) != nil
	}
	return ref
}

// element reports whether there is a further element of an array of which so many were read, and passes over what is in
// front of it.
func (r *reader) element(after int) bool {
	switch {
	case r.odd:
		return false
	case after > 0 && r.next(','):
		return true
	case after == 0:
		if r.skip('['); !r.next(']') {
			return !r.odd
		}
		return false
	}
	r.skip(']')
	return false
}

// many returns how many elements of an array that comes are likely: as often as what they begin with is found before
// its end.
func (r *reader) many(begin string) int {
	rest, _, _ := bytes.Cut(r.in[min(r.at, len(r.in)):], []byte("]}"))
	return bytes.Count(rest, []byte(begin))
}

// extended adds an element to a list, to be read into.
func extended[T any](list *[]T) *T {
	*list = append(*list, *new(T))
	return &(*list)[len(*list)-1]
}

func (r *reader) ports() map[string]int {
	ports := map[string]int{}
	r.open()
	for !r.odd && !r.next('}') {
		if len(ports) > 0 {
			r.skip(',')
		}
		name := r.text()
		r.skip(':')
		ports[name] = r.number()
	}
	return ports
}
