package history

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what Check found.
type Verdict struct {
	// Linearizable says that there is an order in which one server could have given all answers. Decided is false if
	// the time limit ended the check. Linearizable is then false, too.
	Linearizable, Decided bool
	// Calls counts answered calls, Lost the writes that may have happened or not, and Refused the calls without effect
	// or answer.
	Calls, Lost, Refused int

	info  porcupine.LinearizationInfo
	model porcupine.Model
}

// String returns the verdict as a sentence.
func (v Verdict) String() string {
	text := "linearizable"
	switch {
	case !v.Decided:
		text = "not decided in time"
	case !v.Linearizable:
		text = "NOT linearizable"
	}
	return fmt.Sprintf("%s: %d calls, %d of them writes that may have happened or not; %d more had no effect", text,
		v.Calls, v.Lost, v.Refused)
}

// Draw writes a page with a picture of the history, for a browser.
func (v Verdict) Draw(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("draw a history: %w", err)
	}
	if err := porcupine.Visualize(v.model, v.info, f); err != nil {
		return fmt.Errorf("draw a history: %w", err)
	}
	return f.Close()
}

// Check decides within a time limit whether the record is linearizable.
func (r *Recorder) Check(limit time.Duration) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Verdict{Calls: len(r.ops), Lost: r.lost, Refused: r.refused, model: model()}
	ops := slices.Clone(r.ops)
	for i := range ops {
		if out, ok := ops[i].Output.(output); ok && out.lost {
			ops[i].Return = math.MaxInt64 // it may happen yet
		}
	}
	result, info := porcupine.CheckOperationsVerbose(v.model, ops, limit)
	v.Decided, v.Linearizable, v.info = result != porcupine.Unknown, result == porcupine.Ok, info
	return v
}

// state is the record of a service: its count, and its revision if an answer contained it.
type state struct {
	count    int
	revision uint64
}

// model is a server that carries out the calls of each service one after the other.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return state{} },
		Step: func(from, in, out any) (bool, any) {
			s, _ := from.(state)
			i, _ := in.(input)
			o, _ := out.(output)
			ok, next := step(s, i, o)
			return ok, next
		},
		DescribeOperation: func(in, out any) string {
			i, _ := in.(input)
			o, _ := out.(output)
			return describe(i, o)
		},
	}
}

// step reports whether a server in a state can give that answer, and returns its next state.
func step(s state, in input, out output) (bool, state) {
	known := s.revision != 0
	switch in.kind {
	case read:
		return out.count == s.count && (!known || out.revision == s.revision), state{s.count, out.revision}
	case compare:
		fits := !known || in.revision == s.revision
		switch {
		case out.refused:
			return !known || !fits, s
		case out.lost && !fits:
			return true, s // it was refused, and the refusal was lost
		case !fits:
			return false, s
		}
	case write:
	}
	next := state{in.count, out.revision}
	switch {
	case out.lost && in.count == s.count:
		return true, s
	case out.lost:
		return true, next
	case in.count == s.count: // nothing is written
		return !known || out.revision == s.revision, next
	}
	return out.revision > s.revision, next
}

// partition divides a history by service. Services are independent.
func partition(all []porcupine.Operation) [][]porcupine.Operation {
	by := map[string][]porcupine.Operation{}
	var names []string
	for _, op := range all {
		in, _ := op.Input.(input)
		if by[in.service] == nil {
			names = append(names, in.service)
		}
		by[in.service] = append(by[in.service], op)
	}
	slices.SortFunc(names, cmp.Compare)
	parts := make([][]porcupine.Operation, len(names))
	for i, name := range names {
		parts[i] = by[name]
	}
	return parts
}

func describe(in input, out output) string {
	text := ""
	switch in.kind {
	case read:
		return fmt.Sprintf("s%d read: %d @%d", in.server, out.count, out.revision)
	case write:
		text = fmt.Sprintf("s%d put %d", in.server, in.count)
	case compare:
		text = fmt.Sprintf("s%d put %d if @%d", in.server, in.count, in.revision)
	}
	switch {
	case out.lost:
		return text + ": ?"
	case out.refused:
		return text + ": no"
	}
	return fmt.Sprintf("%s: @%d", text, out.revision)
}
