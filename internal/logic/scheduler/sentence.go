package scheduler

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Sentence returns the refusals as text for people, in their order: "3 nodes: memory short by 200 MiB; 1 node: port
// 8080 taken". A shortage is the least among the nodes. Refusals that do not concern nodes have no number.
func Sentence(refusals []cluster.RefusalCount) string {
	var b strings.Builder
	for i, r := range refusals {
		if i > 0 {
			b.WriteString("; ")
		}
		switch r.Nodes {
		case 0:
		case 1:
			b.WriteString("1 node: ")
		default:
			fmt.Fprintf(&b, "%d nodes: ", r.Nodes)
		}
		b.WriteString(phrase(r.Refusal))
	}
	return b.String()
}

// phrase returns one refusal as text.
func phrase(r cluster.Refusal) string {
	switch r.Code {
	case cluster.ReasonNoNodes:
		return "no node has joined yet"
	case cluster.ReasonHold:
		return cmp.Or(r.Detail, "on hold: its priority is 0")
	case cluster.ReasonNodeNotReady:
		return "not ready (" + r.Detail + ")"
	case cluster.ReasonNoExecutor:
		return "no suitable executor"
	case cluster.ReasonConstraint: // first those that Berth adds itself, for what a task uses
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelSecrets) {
			return "no memory folder for secrets"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelServices) {
			return "agent does not follow service addresses"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelArtifacts) {
			return "agent cannot fetch artifacts"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelObjectStore) {
			return "agent has no object store (berth agent --object-store)"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelDiscovery) {
			return "agent does not register tasks in Consul (berth agent --discovery)"
		}
		if strings.HasPrefix(r.Detail, "label."+cluster.LabelIsolation) {
			return "cannot isolate programs (isolation: required); see `berth node status NODE`"
		}
		return r.Detail + " not met"
	case cluster.ReasonSecret, cluster.ReasonNeeds, cluster.ReasonParallelism, cluster.ReasonQuota,
		cluster.ReasonConcurrency, cluster.ReasonBackfill:
		return r.Detail
	case cluster.ReasonTurn:
		return "its turn to be considered comes in a few seconds: the queue is long"
	case cluster.ReasonPool:
		if r.Detail == "" {
			return "in no pool"
		}
		return "in pool " + r.Detail
	case cluster.ReasonReserved, cluster.ReasonVolume, cluster.ReasonNetwork:
		return r.Detail
	case cluster.ReasonTaint:
		return "taint " + r.Detail + " not tolerated"
	case cluster.ReasonDistinct:
		return "the limit of its tasks is reached where " + r.Detail
	case cluster.ReasonSkew:
		return "too many of its tasks run where " + r.Detail + " for the spread"
	case cluster.ReasonRelation:
		if strings.HasPrefix(r.Detail, taskclass.ExclusionPrefix) {
			return r.Detail
		}
		return r.Detail + " not met"
	case cluster.ReasonGang:
		return "its gang waits: " + r.Detail
	case cluster.ReasonOldAttempt:
		return "an earlier attempt is still running there"
	case cluster.ReasonAntiAffinity:
		return "it already runs a task of the same owner"
	case cluster.ReasonShortCPU:
		return withKept("CPU short by "+cpuText(cluster.MilliCPU(r.Short)), r.Detail)
	case cluster.ReasonShortMemory:
		return withKept("memory short by "+cluster.Bytes(r.Short).String(), r.Detail)
	case cluster.ReasonShortDisk:
		return withKept("disk short by "+cluster.Bytes(r.Short).String(), r.Detail)
	case cluster.ReasonDevice:
		if r.Short > 0 {
			return fmt.Sprintf("%s: short by %d", r.Detail, r.Short)
		}
		return r.Detail
	case cluster.ReasonPort:
		return cmp.Or(r.Detail, fmt.Sprintf("port %d taken", r.Port))
	case cluster.ReasonPortsSpent:
		return "no port left to assign"
	default:
		return string(r.Code)
	}
}

// withKept adds to a shortage who keeps some of what is short.
func withKept(text, kept string) string {
	if kept == "" {
		return text
	}
	return text + ", some of it " + kept
}

// cpuText returns an amount of CPU as text: whole CPUs as a number, others in thousandths.
func cpuText(m cluster.MilliCPU) string {
	switch {
	case m == 1000:
		return "1 CPU"
	case m%1000 == 0:
		return m.String() + " CPUs"
	}
	return m.String()
}
