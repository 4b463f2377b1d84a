package planted

import (
	"errors"
	"maps"
	"slices"
)

// ErrFine is a sentinel, and errAlso too.
var (
	ErrFine       = errors.New("fine")
	errAlso error = errors.New("fine")
	_       error = errAlso
)

var (
	counter int // want "package variable counter"
	errors2 = 3 // want "package variable errors2"
	order   = []string{"b", "a"}
	names   = map[string]int{"a": 1}
	table   = &struct{ n int }{} // want "package variable table"
	Open    = []int{1}           // want "exported table Open"
	pair    = [2]point{{1}, {2}}
)

type point struct{ x int }

func (p *point) move()  { p.x++ }
func (p point) at() int { return p.x }

func assign(m map[string]int) int {
	counter++                           // want "counter is assigned"
	order = nil                         // want "order is assigned"
	order[0] = "c"                      // want "order is assigned"
	names["b"] = 2                      // want "names is assigned"
	delete(names, "a")                  // want "names is changed by delete"
	clear(order[:1])                    // want "order is changed by clear"
	slices.Sort(order)                  // want "order is changed by slices.Sort"
	maps.Copy(names, m)                 // want "names is changed by maps.Copy"
	pair[1].x = 4                       // want "pair is assigned"
	pair[1].move()                      // want "pair may be changed by its method move"
	p := &pair[0]                       // want "pair has its address taken"
	for _, pair[0].x = range []int{1} { // want "pair is assigned"
	}
	ErrFine = nil // want "ErrFine is assigned"
	local := slices.Clone(order)
	slices.Sort(local)
	local[0] = "fine"
	_ = table
	_ = Open
	return names["a"] + pair[0].at() + p.x + errors2
}

func init() { // want "init: build the value where it is used"
	_ = assign
}
