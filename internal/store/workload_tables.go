package store

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
)

// workloadTables hold what users want to run, and what the control plane decided about it.
type workloadTables struct {
	clusters  table[cluster.Cluster]
	services  table[cluster.Service]
	rollouts  table[cluster.Rollout]
	scales    table[cluster.Scale]
	jobs      table[cluster.Job]
	crons     table[cluster.Cron]
	fired     table[cluster.CronStatus]
	endpoints table[cluster.Endpoint]
}

// Cluster returns a cluster's spec.
func (w *workloadTables) Cluster(name string) (Entry[cluster.Cluster], bool) {
	return w.clusters.Get(name)
}

// Clusters returns all clusters.
func (w *workloadTables) Clusters() iter.Seq[Entry[cluster.Cluster]] { return scan(w.clusters, "") }

// Service returns a service's spec.
func (w *workloadTables) Service(inCluster, name string) (Entry[cluster.Service], bool) {
	return w.services.Get(inCluster + "/" + name)
}

// Services returns the services of a cluster, or all services where the name is empty.
func (w *workloadTables) Services(inCluster string) iter.Seq[Entry[cluster.Service]] {
	return scan(w.services, folder(inCluster))
}

// Wanted returns a service's spec with the count that its scaling decided. The revision is that of the spec.
func (w *workloadTables) Wanted(inCluster, name string) (Entry[cluster.Service], bool) {
	e, ok := w.Service(inCluster, name)
	if !ok || e.Value.Scaling == nil {
		return e, ok
	}
	scale, _ := w.Scale(inCluster, name)
	e.Value = e.Value.At(scale.Value)
	return e, true
}

// Rollout returns the rollout of a service.
func (w *workloadTables) Rollout(inCluster, name string) (Entry[cluster.Rollout], bool) {
	return w.rollouts.Get(inCluster + "/" + name)
}

// Rollouts returns the rollouts of all services, including those of deleted services. The key names the service, see
// Prefix.Service.
func (w *workloadTables) Rollouts() iter.Seq[Entry[cluster.Rollout]] { return scan(w.rollouts, "") }

// Scale returns the count of a service with scaling.
func (w *workloadTables) Scale(inCluster, name string) (Entry[cluster.Scale], bool) {
	return w.scales.Get(inCluster + "/" + name)
}

// Scales returns the counts of all services with scaling, including those of deleted services.
func (w *workloadTables) Scales() iter.Seq[Entry[cluster.Scale]] { return scan(w.scales, "") }

// Job returns a job's spec.
func (w *workloadTables) Job(inCluster, name string) (Entry[cluster.Job], bool) {
	return w.jobs.Get(inCluster + "/" + name)
}

// Jobs returns the jobs of a cluster, or all jobs where the name is empty.
func (w *workloadTables) Jobs(inCluster string) iter.Seq[Entry[cluster.Job]] {
	return scan(w.jobs, folder(inCluster))
}

// CronJobs returns the jobs that a cron made and that still exist, ordered by their moments.
func (w *workloadTables) CronJobs(inCluster, cron string) iter.Seq[Entry[cluster.Job]] {
	return func(yield func(Entry[cluster.Job]) bool) {
		for e := range scan(w.jobs, inCluster+"/"+cron+"-") {
			if e.Value.Cron == cron && !yield(e) {
				return
			}
		}
	}
}

// Cron returns a cron's spec.
func (w *workloadTables) Cron(inCluster, name string) (Entry[cluster.Cron], bool) {
	return w.crons.Get(inCluster + "/" + name)
}

// Crons returns the crons of a cluster, or all crons where the name is empty.
func (w *workloadTables) Crons(inCluster string) iter.Seq[Entry[cluster.Cron]] {
	return scan(w.crons, folder(inCluster))
}

// Fired returns the progress of a cron through its moments.
func (w *workloadTables) Fired(inCluster, name string) (Entry[cluster.CronStatus], bool) {
	return w.fired.Get(inCluster + "/" + name)
}

// AllFired returns the progress of the crons of a cluster, or of all crons where the name is empty, including deleted
// crons. The key names the cron.
func (w *workloadTables) AllFired(inCluster string) iter.Seq[Entry[cluster.CronStatus]] {
	return scan(w.fired, folder(inCluster))
}

// Endpoint returns an endpoint's spec.
func (w *workloadTables) Endpoint(inCluster, name string) (Entry[cluster.Endpoint], bool) {
	return w.endpoints.Get(inCluster + "/" + name)
}

// Endpoints returns the endpoints of a cluster, or all endpoints where the name is empty.
func (w *workloadTables) Endpoints(inCluster string) iter.Seq[Entry[cluster.Endpoint]] {
	return scan(w.endpoints, folder(inCluster))
}
