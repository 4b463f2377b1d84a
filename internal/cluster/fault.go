package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a value: where, and what to do about it.
type Fault struct {
	// Path names the field from the root of the value, in JSON terms: "containers[1].checks[0].port". It is empty for
	// the value as a whole.
	Path string `json:"path"`
	// Message is a sentence without a full stop: the fault and its correction.
	Message string `json:"message"`
}

// String returns "path: message".
func (f Fault) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Faults is an error with all faults of a value.
type Faults []Fault

// Error joins the faults with "; ".
func (fs Faults) Error() string {
	parts := make([]string, len(fs))
	for i, f := range fs {
		parts[i] = f.String()
	}
	return strings.Join(parts, "; ")
}

// Err returns the faults as an error, or nil if there are none.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// FaultsOf returns the faults that err carries. An error of another kind becomes
// a single fault without a path; nil has none.
func FaultsOf(err error) Faults {
	if err == nil {
		return nil
	}
	if fs, ok := errors.AsType[Faults](err); ok {
		return fs
	}
	return Faults{{Message: err.Error()}}
}

// check collects faults below a path while a value is validated. It has a method for each form of a value, such as a
// name, a span or a path, so that one rule and one sentence serve all fields.
type check struct {
	faults *Faults
	path   string
}

func newCheck() check { return check{faults: new(Faults)} }

// at returns the check of a field of the value.
func (c check) at(field string) check {
	if c.path == "" {
		return check{c.faults, field}
	}
	return check{c.faults, c.path + "." + field}
}

// index returns the check of an element of the field.
func (c check) index(field string, i int) check {
	return c.at(field).element(i)
}

// element returns the check of an element of the value, which is a list.
func (c check) element(i int) check {
	return check{c.faults, fmt.Sprintf("%s[%d]", c.path, i)}
}

// key returns the check of an entry of the value, which is a map.
func (c check) key(key string) check {
	return check{c.faults, fmt.Sprintf("%s[%q]", c.path, clip(key))}
}

// err returns the collected faults as an error, or nil.
func (c check) err() error { return c.faults.Err() }

// maxFaults bounds the faults of one value. A user corrects the first ones, and a million wrong elements would make an
// answer of a hundred megabytes.
const maxFaults = 1000

func (c check) fault(format string, args ...any) {
	if len(*c.faults) >= maxFaults {
		return
	}
	*c.faults = append(*c.faults, Fault{c.path, fmt.Sprintf(format, args...)})
}

// must records the fault unless it holds.
func (c check) must(holds bool, format string, args ...any) {
	if !holds {
		c.fault(format, args...)
	}
}

// bounded returns the elements of a list that are checked: as many as are allowed. A longer list is a fault. To compare
// all elements that a request may hold with each other would take minutes.
func bounded[T any](c check, list []T, most int, what string) []T {
	c.must(len(list) <= most, "holds %d %s, at most %d are allowed", len(list), what, most)
	return list[:min(len(list), most)]
}

// enumerated is a type of text that has only certain values.
type enumerated[T ~string] interface {
	~string
	Values() []T
}

// oneOf requires that got is one of the values of its type, and reports whether it is. Checks that depend on the value
// make no sense for any other.
func oneOf[T enumerated[T]](c check, got T) bool {
	known := got.Values()
	if slices.Contains(known, got) {
		return true
	}
	c.fault("is %q, want one of %s", got, strings.Join(texts(known), ", "))
	return false
}

func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// unique requires that names do not repeat in a list.
func (c check) unique(field string, names []string) {
	seen := make(map[string]int, len(names))
	for i, n := range names {
		if first, ok := seen[n]; ok && n != "" {
			c.index(field, i).at("name").fault("%q is already the name of %s[%d]", n, field, first)
			continue
		}
		seen[n] = i
	}
}
