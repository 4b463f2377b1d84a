package cluster

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Packing of outcomes. A step of at most PackAbove tasks keeps each outcome as a record of its own. Of a larger step,
// the outcomes of tasks that succeeded at their first attempt are packed, PackedPart indices to a record. A record of
// that many tasks has about 30 KB.
const (
	PackAbove  = 1000
	PackedPart = 500
)

// PackedTasks is the record packed/<c>.<j>.<generation>.<step>.<part>: tasks of a step of many tasks that succeeded at
// their first attempt, with the indices from Part×PackedPart on. It replaces the outcomes of these attempts and holds
// all that they say but the last output. Writer: the control plane.
//
// The lists have an entry for each task, ordered by index. Times are in milliseconds.
type PackedTasks struct {
	Cluster    string `json:"cluster"`
	Job        string `json:"job"`
	Generation uint64 `json:"generation"`
	Step       string `json:"step"`
	Part       int    `json:"part"`
	Definition Ref    `json:"definition"`
	// Nodes are the names of the nodes that On refers to.
	Nodes []string `json:"nodes"`
	// Since is the time from which Placed counts. LastEnded is when the last of the tasks ended.
	Since     time.Time `json:"since"`
	LastEnded time.Time `json:"last_ended"`

	Indices []int   `json:"indices"`
	On      []int   `json:"on"`     // positions in Nodes
	UUIDs   []byte  `json:"uuids"`  // 16 bytes each
	Placed  []int64 `json:"placed"` // after Since
	Begun   []int64 `json:"begun"`  // after Placed
	Ended   []int64 `json:"ended"`  // after Begun

	// Unreadable says that the record cannot be read. It is not part of the record.
	Unreadable bool `json:"-"`
}

// uuidBytes is the length of a UUID in PackedTasks.UUIDs.
const uuidBytes = 16

// Packable reports whether PackedTasks can hold the outcome.
func (o *Outcome) Packable() bool {
	_, isUUID := parseUUID(o.UUID)
	return o.State == StateSucceeded && o.Attempt == 1 && isUUID && (o.Exit == nil || o.Exit.Success()) &&
		o.Message == "" && o.Reason == "" && !o.Free && !o.Placed.IsZero() && !o.Begun.IsZero()
}

// With returns a copy that holds further outcomes, which are packable, of the step and part, and not held yet.
func (p *PackedTasks) With(outcomes []*Outcome) *PackedTasks {
	next := *p
	all := make([]packedTask, 0, len(p.Indices)+len(outcomes))
	for i := range p.Indices {
		all = append(all, p.task(i))
	}
	next.Nodes = slices.Clone(p.Nodes)
	for _, o := range outcomes {
		parts, _ := o.Task.Parts()
		if next.Since.IsZero() {
			next.Since = o.Placed.UTC().Truncate(time.Millisecond)
		}
		on := slices.Index(next.Nodes, o.Node)
		if on < 0 {
			on, next.Nodes = len(next.Nodes), append(next.Nodes, o.Node)
		}
		id, _ := parseUUID(o.UUID)
		all = append(all, packedTask{
			index: parts.Index, on: on, uuid: id, placed: o.Placed.Sub(next.Since).Milliseconds(),
			begun: o.Begun.Sub(o.Placed).Milliseconds(), ended: o.Ended.Sub(o.Begun).Milliseconds(),
		})
		if o.Ended.After(next.LastEnded) {
			next.LastEnded = o.Ended.UTC()
		}
	}
	slices.SortFunc(all, func(a, b packedTask) int { return a.index - b.index })
	next.Indices, next.On, next.UUIDs, next.Placed, next.Begun, next.Ended = nil, nil, nil, nil, nil, nil
	for i := range all {
		t := &all[i]
		next.Indices, next.On = append(next.Indices, t.index), append(next.On, t.on)
		next.UUIDs = append(next.UUIDs, t.uuid...)
		next.Placed, next.Begun = append(next.Placed, t.placed), append(next.Begun, t.begun)
		next.Ended = append(next.Ended, t.ended)
	}
	return &next
}

// packedTask is one entry of the lists.
type packedTask struct {
	index, on            int
	uuid                 []byte
	placed, begun, ended int64
}

func (p *PackedTasks) task(i int) packedTask {
	return packedTask{
		p.Indices[i], p.On[i], p.UUIDs[i*uuidBytes : (i+1)*uuidBytes], p.Placed[i], p.Begun[i], p.Ended[i],
	}
}

// Count returns the number of the tasks.
func (p *PackedTasks) Count() int { return len(p.Indices) }

// Has reports whether the task with an index is one of them.
func (p *PackedTasks) Has(index int) bool {
	_, found := slices.BinarySearch(p.Indices, index)
	return found
}

// Outcome returns the outcome of the task with an index, nil if the task is none of them. The outcome has no last
// output.
func (p *PackedTasks) Outcome(index int) *Outcome {
	i, found := slices.BinarySearch(p.Indices, index)
	if !found {
		return nil
	}
	t := p.task(i)
	o := &Outcome{
		Task: JobTask(p.Cluster, p.Job, p.Generation, p.Step, index), Attempt: 1, UUID: formatUUID(t.uuid),
		Node: p.Nodes[t.on], Owner: OwnerRef{Kind: KindJob, Cluster: p.Cluster, Name: p.Job},
		Definition: p.Definition, State: StateSucceeded, Started: true,
		Placed: p.Since.Add(time.Duration(t.placed) * time.Millisecond),
	}
	o.Begun = o.Placed.Add(time.Duration(t.begun) * time.Millisecond)
	o.Ended = o.Begun.Add(time.Duration(t.ended) * time.Millisecond)
	o.Exit = &Exit{At: o.Ended}
	return o
}

// Consistent reports whether the lists belong together, as in each record that Berth wrote.
func (p *PackedTasks) Consistent() bool {
	n := len(p.Indices)
	if len(p.On) != n || len(p.UUIDs) != n*uuidBytes || len(p.Placed) != n || len(p.Begun) != n || len(p.Ended) != n ||
		!slices.IsSorted(p.Indices) {
		return false
	}
	return !slices.ContainsFunc(p.On, func(on int) bool { return on < 0 || on >= len(p.Nodes) })
}

// parseUUID returns the bytes of a UUID in its usual form; ok is false for any other text.
func parseUUID(s string) (id []byte, ok bool) {
	id, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	return id, err == nil && len(id) == uuidBytes && formatUUID(id) == s
}

// formatUUID returns the usual form of a UUID.
func formatUUID(id []byte) string {
	h := hex.EncodeToString(id)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
