package observe

import (
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// unmet says in a sentence which needs of an owner in the cluster are not met, "" if all are. A service meets a need
// while all of its tasks are healthy, a job once it has succeeded.
func (d *Domain) unmet(inCluster string, needs []string) string {
	var missing []string
	for _, o := range cluster.NeededOwners(inCluster, needs) {
		if why := d.obstacle(o); why != "" {
			missing = append(missing, fmt.Sprintf("%s (%s)", o, why))
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "waits for " + strings.Join(missing, " and ")
}

// obstacle says what keeps a needed service or job from meeting the need, "" if nothing does. Many owners may need the
// same one.
func (d *Domain) obstacle(o cluster.OwnerRef) string {
	if why, known := d.obstacles[o]; known {
		return why
	}
	var why string
	if o.Kind == cluster.KindJob {
		why = d.jobObstacle(o)
	} else {
		why = d.serviceObstacle(o)
	}
	if d.obstacles == nil {
		d.obstacles = map[cluster.OwnerRef]string{}
	}
	d.obstacles[o] = why
	return why
}

// serviceObstacle says what keeps a needed service from being healthy, "" if nothing does.
func (d *Domain) serviceObstacle(o cluster.OwnerRef) string {
	e, ok := d.Snapshot.Service(o.Cluster, o.Name)
	if !ok || e.Value.Deleted {
		return "does not exist"
	}
	st := reconciler.StatusOfService(d.serviceInput(o, e, d.Tasks(o)))
	switch {
	case st.Desired == 0 && e.Value.Mode == cluster.ModeDaemon:
		return "runs on no node"
	case st.Desired == 0:
		return "stopped"
	case st.Healthy < st.Desired:
		return fmt.Sprintf("%d/%d healthy", st.Healthy, st.Desired)
	case st.State != cluster.ServiceHealthy: // its tasks may be of an earlier version
		return string(st.State)
	}
	return ""
}

// jobObstacle says what keeps a needed job from having succeeded, "" if nothing does.
func (d *Domain) jobObstacle(o cluster.OwnerRef) string {
	e, ok := d.Snapshot.Job(o.Cluster, o.Name)
	if !ok || e.Value.Deleted {
		return "does not exist; a job is deleted some time after its end, see keep_jobs"
	}
	st := reconciler.StatusOfJob(d.jobInput(o, e, d.Tasks(o)))
	switch st.State {
	case cluster.JobSucceeded:
		return ""
	case cluster.JobFailed:
		return fmt.Sprintf("failed: berth retry %s", o)
	case cluster.JobCancelled:
		return fmt.Sprintf("cancelled: berth restart %s", o)
	}
	return fmt.Sprintf("%d/%d done", st.Succeeded, st.Total)
}
