// Package recordjson decodes the most frequent records of the store without reflection, which takes several times as
// long. It reads only the exact form that store.Encode writes and leaves every other form to encoding/json.
package recordjson

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// reader decodes a record in the exact form that store.Encode writes: the fields in the order of the type, without
// white space. It marks a record in any other form as irregular. Both it and encoding/json decode equal values from the
// records that both read.
type reader struct {
	in        []byte
	at        int
	irregular bool
	// interned holds texts that were read lately: a record repeats the same text for many tasks.
	interned [8]string
}

// Read decodes the fields of a record, which begin at an index of in, behind the opening brace and perhaps other
// fields, into a pointer to the record. It returns false for a type that it does not know and for an irregular form;
// the content of the record is then undefined. Read keeps no reference to in and may be called concurrently.
func Read(in []byte, at int, into any) bool {
	r := reader{in: in, at: at}
	switch v := into.(type) {
	case *cluster.Observed:
		readObserved(&r, v)
	case *cluster.Desired:
		readDesired(&r, v)
	case *cluster.Outcome:
		readOutcome(&r, v)
	case *cluster.PlanRecord:
		readPlanRecord(&r, v)
	case *cluster.EventBatch:
		readEventBatch(&r, v)
	default:
		return false
	}
	return !r.irregular && r.at == len(r.in)
}

// openObject reads the beginning of an object.
func (r *reader) openObject() { r.expect('{') }

// closeObject reads the end of an object.
func (r *reader) closeObject() { r.expect('}') }

// expect reads the byte c; any other byte is irregular.
func (r *reader) expect(c byte) {
	if !r.accept(c) {
		r.irregular = true
	}
}

// accept reads the byte c if it is the next.
func (r *reader) accept(c byte) bool {
	if r.irregular || r.at >= len(r.in) || r.in[r.at] != c {
		return false
	}
	r.at++
	return true
}

// field reads the name of a field if it is the next.
func (r *reader) field(name string) bool {
	if r.irregular {
		return false
	}
	at, n := r.at, len(name)
	if r.in[at-1] != '{' { // another field of the object was read before
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

// quotedText reads a text and returns it with its quotes. plain says that the text has no escapes and only ASCII.
func (r *reader) quotedText() (raw []byte, plain bool) {
	from := r.at
	if r.expect('"'); r.irregular {
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
			r.irregular = true
			return nil, false
		case c >= 0x80:
			plain = false
		}
	}
	r.irregular = true
	return nil, false
}

// text reads a text.
func (r *reader) text() (s string) {
	raw, plain := r.quotedText()
	switch {
	case r.irregular:
	case plain:
		return string(raw[1 : len(raw)-1])
	default:
		var err error
		s, err = unquote(raw)
		r.irregular = err != nil
	}
	return s
}

func unquote(raw []byte) (s string, err error) {
	err = json.Unmarshal(raw, &s)
	return s, err
}

// internedText reads a text that few distinct values fill, and shares the string with earlier reads.
func (r *reader) internedText() string {
	from := r.at
	raw, plain := r.quotedText()
	if r.irregular || !plain || len(raw) == 2 {
		r.at = from
		return r.text()
	}
	raw = raw[1 : len(raw)-1]
	if word, ok := commonWord(raw); ok {
		return word
	}
	known := &r.interned[(len(raw)+int(raw[0])+int(raw[len(raw)-1]))%len(r.interned)]
	if *known != string(raw) {
		*known = string(raw)
	}
	return *known
}

// commonWord returns the constant for a word that appears in nearly all records.
func commonWord(raw []byte) (word string, ok bool) {
	switch string(raw) {
	case string(cluster.KindJob):
		return string(cluster.KindJob), true
	case string(cluster.KindService):
		return string(cluster.KindService), true
	case string(cluster.StatePreparing):
		return string(cluster.StatePreparing), true
	case string(cluster.StateStarting):
		return string(cluster.StateStarting), true
	case string(cluster.StateRunning): // also the state of a container
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

// unsigned reads a number. A number of 19 digits or more is irregular.
func (r *reader) unsigned() (n uint64) {
	from := r.at
	for ; r.at < len(r.in) && isDigit(r.in[r.at]); r.at++ {
		n = n*10 + uint64(r.in[r.at]-'0')
	}
	digits := r.at - from
	if digits == 0 || digits > 18 || digits > 1 && r.in[from] == '0' || r.at == len(r.in) || r.in[r.at] == '.' ||
		r.in[r.at]|0x20 == 'e' {
		r.irregular = true
	}
	return n
}

func (r *reader) number() int {
	if r.accept('-') {
		return -int(r.unsigned())
	}
	return int(r.unsigned())
}

// boolean reads true or false.
func (r *reader) boolean() bool {
	if r.literal("true") {
		return true
	}
	if !r.literal("false") {
		r.irregular = true
	}
	return false
}

// literal reads a literal if it is the next.
func (r *reader) literal(w string) bool {
	if r.irregular || len(r.in) < r.at+len(w) || string(r.in[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

func (r *reader) time() (t time.Time) {
	if raw, _ := r.quotedText(); !r.irregular {
		r.irregular = t.UnmarshalJSON(raw) != nil
	}
	return t
}

func (r *reader) duration() (d cluster.Duration) {
	if raw, _ := r.quotedText(); !r.irregular {
		r.irregular = d.UnmarshalJSON(raw) != nil
	}
	return d
}

// ref reads a reference to a task definition.
func (r *reader) ref() (ref cluster.Ref) {
	raw, plain := r.quotedText()
	if r.irregular = r.irregular || !plain; !r.irregular {
		r.irregular = ref.UnmarshalText(raw[1:len(raw)-1]) != nil
	}
	return ref
}

// nextElement reports whether an array has another element after the given number of elements, and reads the bracket or
// comma before it.
func (r *reader) nextElement(after int) bool {
	switch {
	case r.irregular:
		return false
	case after > 0 && r.accept(','):
		return true
	case after == 0:
		if r.expect('['); !r.accept(']') {
			return !r.irregular
		}
		return false
	}
	r.expect(']')
	return false
}

// estimateElements estimates the number of elements of the next array: the occurrences of the beginning of an element
// before the likely end.
func (r *reader) estimateElements(begin string) int {
	rest, _, _ := bytes.Cut(r.in[min(r.at, len(r.in)):], []byte("]}"))
	return bytes.Count(rest, []byte(begin))
}

// appendZero appends a zero element to a list and returns a pointer to it.
func appendZero[T any](list *[]T) *T {
	*list = append(*list, *new(T))
	return &(*list)[len(*list)-1]
}

// readMap reads an object with any names.
func readMap[V any](r *reader, value func() V) map[string]V {
	m := map[string]V{}
	r.openObject()
	for !r.irregular && !r.accept('}') {
		if len(m) > 0 {
			r.expect(',')
		}
		name := r.text()
		r.expect(':')
		m[name] = value()
	}
	return m
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
