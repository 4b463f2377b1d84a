// Package wording holds the words and the small forms of Berth's sentences that the servers and the command line share:
// names of objects and tasks as the command line takes them, counts, and spans of time. The sentences of refusals are
// in logic/scheduler/sentence.go.
package wording

import (
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Words for the kinds of objects, as in "service/web".
const (
	KindService    = "service"
	KindJob        = "job"
	KindDefinition = "definition"
	KindCluster    = "cluster"
	KindPool       = "pool"
	KindProfile    = "profile"
	KindDomain     = "domain"
	KindNode       = "node"
	KindTask       = "task"
	KindCron       = "cron"
	KindEndpoint   = "endpoint"
)

// Object returns the full reference of an object: CLUSTER/KIND/NAME, or KIND/NAME for objects without a cluster. Only
// the command line shortens it, because only the user's shell has a current cluster.
func Object(kind, in, name string) string {
	if in == "" {
		return kind + "/" + name
	}
	return in + "/" + kind + "/" + name
}

// OwnerKind returns the word for the kind of an owner.
func OwnerKind(o cluster.OwnerRef) string {
	switch o.Kind {
	case cluster.KindJob:
		return KindJob
	case cluster.KindCron:
		return KindCron
	case cluster.KindEndpoint:
		return KindEndpoint
	default:
		return KindService
	}
}

// Span writes a duration in the largest whole unit with a number of at least two: "90s", "3h", "12d". A negative
// duration is "0s".
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// Count writes a number with its noun: "1 task", "2 tasks".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// JoinNonEmpty joins the parts that are not empty.
func JoinNonEmpty(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

// OneLine returns a text with all white space, line ends too, as single spaces.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Pressure says what a node is short of, and which task its agent suggests to move away.
func Pressure(p *cluster.Pressure) string {
	text := OneLine(p.Message)
	if p.Task == "" {
		return text
	}
	return JoinNonEmpty("; ", text, JoinNonEmpty(": ", string(p.Task)+" will move away", OneLine(p.Why)))
}
