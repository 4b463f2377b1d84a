package apiserver

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/internal/cluster"
)

// What a task may reach beyond itself is a permission of its cluster. A service, job or cron is refused here if its
// definitions ask for more, and only an admin changes the permissions. Nodes look again at what is theirs: an agent
// lends no path that its operator did not name.

// grant fills in the permissions of a cluster that names none, and refuses a change of them to callers who are no
// admin. old is nil for a new cluster.
func (d *draft) grant(old, c *cluster.Cluster) error {
	had := d.permissions
	if old != nil {
		had = old.Permissions
	}
	if c.Permissions == nil {
		c.Permissions = had
	}
	if d.caller == nil || rank(d.caller.role) >= rank(cluster.RoleAdmin) ||
		cluster.SamePermissions(had, c.Permissions) {
		return nil
	}
	return problemf(http.StatusForbidden,
		"to change the permissions of cluster %s needs the role %s, and %s has the role %s: leave "+
			"permissions out, or ask an admin",
		c.Name, cluster.RoleAdmin, d.caller.who, d.caller.role)
}

// permitted returns a fault for each field of a definition that needs a permission which the cluster does not have.
// What does not exist has none: that is told elsewhere. The draft rests on the cluster's record already.
func (d *draft) permitted(in string, ref cluster.Ref, path string) cluster.Faults {
	def, c := d.definition(ref), d.clusters[in]
	if c == nil {
		e, _ := d.snap.Cluster(in)
		c = e.Value
	}
	if def == nil || c == nil {
		return nil
	}
	return c.CheckPermissions(path, def)
}

// permittedSteps is permitted for the steps of a job, at a path.
func (d *draft) permittedSteps(in string, steps []cluster.Step, path string) (faults cluster.Faults) {
	for i := range steps {
		faults = append(faults, d.permitted(in, steps[i].Definition, fmt.Sprintf("%s[%d].definition", path, i))...)
	}
	return faults
}

// still refuses to begin tasks anew of what was written when the cluster had more permissions. The draft rests on the
// cluster's record from then on.
func (d *draft) still(in string, faults cluster.Faults) error {
	if err := d.inCluster(in); err != nil {
		return err
	}
	return faults.Err()
}
