package cluster

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// TaskRange is tasks of one service or step with consecutive indices.
type TaskRange struct {
	First   TaskID `json:"first"`
	Further int    `json:"further,omitempty"` // the number of tasks after the first one
}

// Count returns the number of the tasks.
func (r TaskRange) Count() int { return 1 + r.Further }

// Offset returns the id of the task whose index is larger by n. It returns the id itself if that is no task id.
func (id TaskID) Offset(n int) TaskID {
	tasks, index, ok := id.Cut()
	if n == 0 || !ok {
		return id
	}
	return TaskID(tasks + "." + strconv.Itoa(index+n))
}

// Cut splits the id into the part that all tasks of its service or step share, and the index; ok is false if it is no
// task id.
func (id TaskID) Cut() (tasks string, index int, ok bool) {
	dot := strings.LastIndexByte(string(id), '.')
	if dot < 0 || dot+1 == len(id) || len(id)-dot > len("1234567890") {
		return "", 0, false
	}
	for _, digit := range []byte(id[dot+1:]) {
		if digit < '0' || digit > '9' {
			return "", 0, false
		}
		index = index*10 + int(digit-'0')
	}
	return string(id[:dot]), index, true
}

// Range returns the tasks of the request.
func (p *Pending) Range() TaskRange { return TaskRange{p.Task, p.Further} }

// Range returns the tasks that wait.
func (w *Waiting) Range() TaskRange { return TaskRange{w.Task, w.Further} }

// Tasks returns the number of tasks of the request.
func (p *Pending) Tasks() int { return 1 + p.Further }

// Single returns the request of the first task alone.
func (p *Pending) Single() Pending {
	one := *p
	one.Further = 0
	return one
}

// Skip returns the request without its first n tasks, fewer than all of them.
func (p *Pending) Skip(n int) Pending {
	rest := *p
	rest.Task, rest.Further = p.Task.Offset(n), p.Further-n
	return rest
}

// Has reports whether a task is one of them.
func (r TaskRange) Has(task TaskID) bool {
	of, first := r.First.place()
	other, index := task.place()
	return of == other && first <= index && index <= first+r.Further
}

// Each yields the ids of the tasks.
func (r TaskRange) Each(yield func(TaskID) bool) {
	for n := range r.Count() {
		if !yield(r.First.Offset(n)) {
			return
		}
	}
}

// RangesOf yields the tasks of requests, with the indices of the requests.
func RangesOf(pending []Pending) iter.Seq2[TaskRange, int] {
	return func(yield func(TaskRange, int) bool) {
		for i := range pending {
			if !yield(pending[i].Range(), i) {
				return
			}
		}
	}
}

// CountTasks returns the number of tasks of requests.
func CountTasks(pending []Pending) (tasks int) {
	for i := range pending {
		tasks += pending[i].Tasks()
	}
	return tasks
}

// Expand returns the requests with a request of its own for each task.
func Expand(pending []Pending) []Pending {
	total := CountTasks(pending)
	if total == len(pending) {
		return pending
	}
	out := make([]Pending, 0, total)
	for i := range pending {
		for n := range pending[i].Tasks() {
			rest := pending[i].Skip(n)
			out = append(out, rest.Single())
		}
	}
	return out
}

// Isolate returns the requests with a request of its own for each of the tasks. It returns the same slice if there is
// nothing to do.
func Isolate(pending []Pending, tasks []TaskID) []Pending {
	return isolate(pending, tasks, (*Pending).Range, func(p Pending, r TaskRange) Pending {
		p.Task, p.Further = r.First, r.Further
		return p
	})
}

// IsolateWaiting does the same for reasons.
func IsolateWaiting(waiting []Waiting, tasks []TaskID) []Waiting {
	return isolate(waiting, tasks, (*Waiting).Range, func(w Waiting, r TaskRange) Waiting {
		w.Task, w.Further = r.First, r.Further
		return w
	})
}

func isolate[T any](all []T, tasks []TaskID, rangeOf func(*T) TaskRange, with func(T, TaskRange) T) (out []T) {
	indices := map[string][]int{} // by what the ids share
	for _, id := range tasks {
		of, index := id.place()
		indices[of] = append(indices[of], index)
	}
	for i := range all {
		parts := rangeOf(&all[i]).isolate(indices)
		if len(parts) > 1 && out == nil {
			out = slices.Clone(all[:i])
		}
		if len(parts) > 1 {
			for _, part := range parts {
				out = append(out, with(all[i], part))
			}
		} else if out != nil {
			out = append(out, all[i])
		}
	}
	if out == nil {
		return all
	}
	return out
}

// isolate cuts the range so that each of the tasks with the indices is alone. It returns nil if there is nothing to
// cut.
func (r TaskRange) isolate(indices map[string][]int) (parts []TaskRange) {
	if r.Further == 0 || len(indices) == 0 {
		return nil
	}
	of, first := r.First.place()
	cuts := []int{0} // the numbers of the tasks with which the parts begin
	for _, index := range indices[of] {
		for n := index - first; n <= index-first+1; n++ {
			if n > 0 && n <= r.Further && index >= first {
				cuts = append(cuts, n)
			}
		}
	}
	slices.Sort(cuts)
	cuts = append(slices.Compact(cuts), r.Count()) // tasks may be given twice
	for i, n := range cuts[:len(cuts)-1] {
		parts = append(parts, TaskRange{r.First.Offset(n), cuts[i+1] - n - 1})
	}
	return parts
}

// TaskIndex finds the numbers of ranges of tasks. The ranges have no task in common. It is for concurrent use once all
// ranges are known.
type TaskIndex struct {
	// By what the ids share: single ranges, and in the order of the indices those that share it with others. Most tasks
	// of a large queue may have a range of their own.
	single map[string]numberedRange
	shared map[string][]numberedRange
}

type numberedRange struct{ first, last, number int }

// IndexTasks returns an index of ranges, each with its number.
func IndexTasks(ranges iter.Seq2[TaskRange, int]) *TaskIndex {
	x := &TaskIndex{single: map[string]numberedRange{}, shared: map[string][]numberedRange{}}
	unsorted := map[string]bool{}
	for r, number := range ranges {
		of, first := r.First.place()
		next := numberedRange{first, first + r.Further, number}
		list, shared := x.shared[of]
		if !shared {
			one, known := x.single[of]
			if !known {
				x.single[of] = next
				continue
			}
			list = []numberedRange{one}
			delete(x.single, of)
		}
		if list[len(list)-1].first > first {
			unsorted[of] = true
		}
		x.shared[of] = append(list, next)
	}
	for of := range unsorted { // order-free: each by itself
		slices.SortFunc(x.shared[of], func(a, b numberedRange) int { return cmp.Compare(a.first, b.first) })
	}
	return x
}

// place returns the part that all ids of the service or step share, and the index. Any other text has a part of its
// own.
func (id TaskID) place() (tasks string, index int) {
	tasks, index, ok := id.Cut()
	if !ok {
		return string(id), 0
	}
	return tasks, index
}

// from returns the ranges that do not end before an index.
func (x *TaskIndex) from(of string, index int) []numberedRange {
	if one, ok := x.single[of]; ok {
		if one.last < index {
			return nil
		}
		return []numberedRange{one}
	}
	list := x.shared[of]
	at, _ := slices.BinarySearchFunc(list, index, func(r numberedRange, index int) int {
		return cmp.Compare(r.last, index)
	})
	return list[at:]
}

// Find returns the number of the range that holds a task, and false if there is none.
func (x *TaskIndex) Find(id TaskID) (number int, found bool) {
	of, index := id.place()
	rest := x.from(of, index)
	if len(rest) == 0 || index < rest[0].first {
		return 0, false
	}
	return rest[0].number, true
}

// Overlap returns the number of tasks of a range that are in ranges of the index.
func (x *TaskIndex) Overlap(r TaskRange) (tasks int) {
	of, first := r.First.place()
	last := first + r.Further
	for _, s := range x.from(of, first) {
		if s.first > last {
			break
		}
		tasks += min(s.last, last) - max(s.first, first) + 1
	}
	return tasks
}
