package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/shorten"
)

// Longest names, in bytes. They limit the length of keys and ids.
const (
	MaxName     = 63
	MaxNodeName = 253
	MaxLabel    = 256
	MaxLabels   = 64
)

// ValidName reports whether s can name an object: 1 to 63 of a–z, 0–9 and "-", with a letter first and no "-" last. So
// a name never holds a separator of a key ("/"), of a task id (".") or of a reference ("@").
func ValidName(s string) bool {
	if s == "" || len(s) > MaxName || s[0] < 'a' || s[0] > 'z' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// ValidNodeName reports whether s can name a node: a lower-case host name, in one or several parts
// joined by ".", each of a–z, 0–9 and "-".
func ValidNodeName(s string) bool {
	if s == "" || len(s) > MaxNodeName {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || len(part) > MaxName || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
		if strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

func (c check) name(s string) {
	if !ValidName(s) {
		c.fault("%q is not a name: want 1 to %d of a-z, 0-9 and \"-\", a letter first, no \"-\" last", clip(s), MaxName)
	}
}

// Labels are an object's own attributes, for people and for constraints.
type Labels map[string]string

func (c check) labels(labels Labels) {
	c.must(len(labels) <= MaxLabels, "holds %d labels, at most %d are allowed", len(labels), MaxLabels)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		entry := c.key(k)
		if !validLabelKey(k) {
			entry.fault("is not a label key: want 1 to %d of letters, digits, \"-\", \"_\", \".\" and \"/\"", MaxName)
		}
		entry.must(len(labels[k]) <= MaxLabel && printable(labels[k]),
			"has a value that is longer than %d bytes or not printable text", MaxLabel)
	}
}

func validLabelKey(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-_./", rune(c)) {
			return false
		}
	}
	return true
}

// printable reports whether s is UTF-8 text without control characters.
func printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return false
		}
	}
	return true
}

// clip shortens a string that came from outside for use in a message.
func clip(s string) string { return shorten.Marked(s, MaxName) }

// TaskID names a task for its whole life. It is
//
//	<cluster>.<service>.<generation>.<index>
//	<cluster>.<job>.<generation>.<step>.<index>
//
// It can be computed from the owner's spec before the task is stored anywhere. Two generations of a service are
// different tasks that may run at the same time. The parts hold no ".", so an id has one reading.
type TaskID string

// ServiceTask returns the id of a service's task.
func ServiceTask(cluster, service string, generation uint64, index int) TaskID {
	return TaskID(cluster + "." + service + "." + strconv.FormatUint(generation, 10) + "." + strconv.Itoa(index))
}

// JobTask returns the id of a task of a job's step.
func JobTask(cluster, job string, generation uint64, step string, index int) TaskID {
	return TaskID(cluster + "." + job + "." + strconv.FormatUint(generation, 10) + "." + step + "." +
		strconv.Itoa(index))
}

// TaskParts is a task id taken apart. Step is empty for a service's task.
type TaskParts struct {
	Cluster, Owner string
	Generation     uint64
	Step           string
	Index          int
}

// Owner returns the service or job of the task; ok is false if the id is no task id.
func (id TaskID) Owner() (o OwnerRef, ok bool) {
	p, ok := id.Parts()
	if !ok {
		return OwnerRef{}, false
	}
	kind := KindService
	if p.Step != "" {
		kind = KindJob
	}
	return OwnerRef{Kind: kind, Cluster: p.Cluster, Name: p.Owner}, true
}

// Parts takes the id apart; ok is false if it is not a task id.
func (id TaskID) Parts() (p TaskParts, ok bool) {
	f := strings.Split(string(id), ".")
	if len(f) != 4 && len(f) != 5 {
		return p, false
	}
	p.Cluster, p.Owner = f[0], f[1]
	gen, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil || !ValidName(p.Cluster) || !ValidName(p.Owner) {
		return p, false
	}
	p.Generation = gen
	if len(f) == 5 {
		p.Step = f[3]
		if !ValidName(p.Step) {
			return p, false
		}
	}
	p.Index, err = strconv.Atoi(f[len(f)-1])
	if err != nil || p.Index < 0 || id != p.id() {
		return p, false
	}
	return p, true
}

func (p TaskParts) id() TaskID {
	if p.Step == "" {
		return ServiceTask(p.Cluster, p.Owner, p.Generation, p.Index)
	}
	return JobTask(p.Cluster, p.Owner, p.Generation, p.Step, p.Index)
}
