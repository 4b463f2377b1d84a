package store

import (
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// DefaultPrefix is the default prefix of a store's keys.
const DefaultPrefix = "berth/"

// Prefix makes the keys of the store's layout (a public contract: see the reference). It ends in "/".
type Prefix string

// Cluster returns the key of a cluster's spec.
func (p Prefix) Cluster(name string) string { return string(p) + nounCluster + "/" + name }

// Service returns the key of a service's spec.
func (p Prefix) Service(cluster, name string) string {
	return string(p) + nounService + "/" + cluster + "/" + name
}

// Job returns the key of a job's spec.
func (p Prefix) Job(cluster, name string) string {
	return string(p) + nounJob + "/" + cluster + "/" + name
}

// Owner returns the key of the spec of a service or a job.
func (p Prefix) Owner(o cluster.OwnerRef) string {
	if o.Kind == cluster.KindJob {
		return p.Job(o.Cluster, o.Name)
	}
	return p.Service(o.Cluster, o.Name)
}

// NewestDefinition returns the key of the record that holds the number of a definition's newest version.
func (p Prefix) NewestDefinition(name string) string { return string(p) + nounDefinition + "/" + name }

// Definition returns the key of a definition's version.
func (p Prefix) Definition(r cluster.Ref) string {
	return string(p) + nounDefinition + "/" + r.Name + "/" + strconv.Itoa(r.Version)
}

// Profile returns the key of a version of a profile of machines.
func (p Prefix) Profile(ref cluster.Ref) string {
	return string(p) + nounProfile + "/" + ref.Name + "/" + strconv.Itoa(ref.Version)
}

// Pool returns the key of the operator's settings of a pool of nodes.
func (p Prefix) Pool(name string) string { return string(p) + nounPool + "/" + name }

// Host returns the key of the operator's settings of a node.
func (p Prefix) Host(name string) string { return string(p) + nounHost + "/" + name }

// Node returns the key of the control plane's verdict on a node.
func (p Prefix) Node(name string) string { return string(p) + nounNode + "/" + name }

// NodeStatus returns the key of the registration of a node's agent.
func (p Prefix) NodeStatus(node string) string { return string(p) + nounStatus + "/" + node }

// Observed returns the key of an agent's status of a task.
func (p Prefix) Observed(node string, task cluster.TaskID) string {
	return string(p) + nounStatus + "/" + node + "/" + string(task)
}

// Desired returns the key of the desired record of a task on a node.
func (p Prefix) Desired(node string, task cluster.TaskID) string {
	return string(p) + nounState + "/" + node + "/" + string(task)
}

// Attempts is in front of the keys of all desired records.
func (p Prefix) Attempts() string { return string(p) + nounState + "/" }

// Scheduled returns the key that holds "true" while a task is scheduled anywhere.
func (p Prefix) Scheduled(task cluster.TaskID) string {
	return string(p) + nounState + "/" + string(task)
}

// Outcome returns the key of an attempt's outcome.
func (p Prefix) Outcome(task cluster.TaskID, attempt int) string {
	return string(p) + nounOutcome + "/" + string(task) + "/" + strconv.Itoa(attempt)
}

// Packed returns the key of the record of packed tasks of a job's step.
func (p Prefix) Packed(t *cluster.PackedTasks) string {
	return string(p) + nounPacked + "/" + packedKey(t.Cluster, t.Job, t.Generation, t.Step, t.Part)
}

// Plan returns the key of a plan record. The number has 20 digits, so keys sort as numbers do.
func (p Prefix) Plan(seq uint64) string {
	s := strconv.FormatUint(seq, 10)
	return string(p) + nounPlan + "/" + strings.Repeat("0", 20-len(s)) + s
}

// Leader returns the key of a domain's leader record.
func (p Prefix) Leader(domain string) string { return string(p) + nounLeader + "/" + domain }

// Event returns the key of an event batch.
func (p Prefix) Event(id string) string { return string(p) + nounEvent + "/" + id }

// Publisher returns the key of the record that says how far the event log was sent to a system outside of Berth.
func (p Prefix) Publisher(name string) string { return string(p) + nounPublisher + "/" + name }

// EventTrim returns the key of the record that says how far the event log was trimmed.
func (p Prefix) EventTrim() string { return string(p) + nounTrim + "/" + nounEvent }

// Server returns the key of a member of the control plane.
func (p Prefix) Server(id string) string { return string(p) + nounServer + "/" + id }

// Token returns the key of the record of an access token or a join token.
func (p Prefix) Token(id string) string { return string(p) + nounToken + "/" + id }

// Domain returns the key of the operator's settings of a domain.
func (p Prefix) Domain(name string) string { return string(p) + nounDomain + "/" + name }

// Rollout returns the key of the rollout of a service.
func (p Prefix) Rollout(cluster, name string) string {
	return string(p) + nounRollout + "/" + cluster + "/" + name
}

// Scale returns the key of the count of a service with scaling.
func (p Prefix) Scale(cluster, name string) string {
	return string(p) + nounScale + "/" + cluster + "/" + name
}

// Cron returns the key of a cron's spec.
func (p Prefix) Cron(cluster, name string) string {
	return string(p) + nounCron + "/" + cluster + "/" + name
}

// Fired returns the key of the progress of a cron through its moments.
func (p Prefix) Fired(cluster, name string) string {
	return string(p) + nounFired + "/" + cluster + "/" + name
}

// Endpoint returns the key of an endpoint.
func (p Prefix) Endpoint(cluster, name string) string {
	return string(p) + nounEndpoint + "/" + cluster + "/" + name
}

// Rebalancing returns the key of a rebalancing. The number has 20 digits, so keys sort as numbers do.
func (p Prefix) Rebalancing(id uint64) string {
	return string(p) + nounRebalancing + "/" + rebalancingKey(id)
}

// Reservation returns the key of a reservation.
func (p Prefix) Reservation(name string) string { return string(p) + nounReservation + "/" + name }

// Secret returns the key of a secret.
func (p Prefix) Secret(cluster, name string) string {
	return string(p) + nounSecret + "/" + cluster + "/" + name
}

// SecretKey returns the key of a data key's record.
func (p Prefix) SecretKey(id string) string { return string(p) + nounSecretKey + "/" + id }

// MasterKey returns the key of a master key's record.
func (p Prefix) MasterKey(id string) string { return string(p) + nounMasterKey + "/" + id }

// Recovery returns the key of a domain's recovery.
func (p Prefix) Recovery(domain string) string { return string(p) + nounRecovery + "/" + domain }
