package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Priority is the priority of a service's or a job's tasks, from 1 to MaxPriority; 0 is one that was left out. In
// manifests it is a number or one of PriorityNames.
type Priority int

// DefaultPriority of a service's or a job's tasks. Priorities run from 1 to MaxPriority.
const (
	DefaultPriority = 500
	MaxPriority     = 1000
)

// namedPriorities are the names of priorities, the lowest first. Each is more than PreemptionGap above the one before,
// so that its tasks may take the place of theirs. The names are those of Taskcluster.
func namedPriorities() []struct {
	name  string
	value Priority
} {
	return []struct {
		name  string
		value Priority
	}{
		{"lowest", 50},
		{"very-low", 200},
		{"low", 350},
		{"medium", DefaultPriority},
		{"high", 650},
		{"very-high", 800},
		{"highest", 950},
	}
}

// PriorityNames returns the names of priorities, the lowest first.
func PriorityNames() []string {
	var names []string
	for _, p := range namedPriorities() {
		names = append(names, p.name)
	}
	return names
}

// PriorityWords says what a priority may be.
func PriorityWords() string {
	names := PriorityNames()
	last := len(names) - 1
	return fmt.Sprintf("a number from 1 to %d, or %s or %s", MaxPriority, strings.Join(names[:last], ", "), names[last])
}

// PriorityTable lists the names with their numbers, as a part of a sentence.
func PriorityTable() string {
	var all []string
	for _, p := range namedPriorities() {
		all = append(all, fmt.Sprintf("%s (%d)", p.name, p.value))
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// ParsePriority reads what PriorityWords says.
func ParsePriority(text string) (p Priority, ok bool) {
	for _, p := range namedPriorities() {
		if p.name == text {
			return p.value, true
		}
	}
	n, err := strconv.Atoi(text)
	return Priority(n), err == nil && n >= 1 && n <= MaxPriority
}

// UnmarshalJSON reads a name, or a number other than 0. Validate judges other numbers, together with other faults.
func (p *Priority) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	if n, err := strconv.Atoi(text); err == nil && n != 0 {
		*p = Priority(n)
		return nil
	}
	read, ok := ParsePriority(text)
	if !ok {
		return fmt.Errorf("is %s, want %s; without the field it is %d", clip(text), PriorityWords(), DefaultPriority)
	}
	*p = read
	return nil
}
