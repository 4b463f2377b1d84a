package draft

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// Permissions of a cluster limit what its tasks reach outside of themselves. A service, job or cron is refused here if
// its definitions need more, and only an admin changes the permissions. Agents check their own part again: an agent
// exposes only paths that its operator named.

// grant sets the permissions of a cluster that names none, and lets only admins change them. old is nil for a new
// cluster.
func (d *Draft) grant(old, c *cluster.Cluster) error {
	had := d.permissions
	if old != nil {
		had = old.Permissions
	}
	if c.Permissions == nil {
		c.Permissions = had
	}
	if d.Caller == nil || access.Rank(d.Caller.Role) >= access.Rank(cluster.RoleAdmin) ||
		cluster.SamePermissions(had, c.Permissions) {
		return nil
	}
	return respond.Problemf(http.StatusForbidden,
		"to change the permissions of cluster %s needs the role %s, and %s has the role %s: leave "+
			"permissions out, or ask an admin",
		c.Name, cluster.RoleAdmin, d.Caller.Who, d.Caller.Role)
}

// CheckPermissions returns a fault for each field of a definition that needs a missing permission of the cluster.
// Missing definitions or clusters have no such faults; another check refuses them. The draft already has the cluster's
// revision as a precondition.
func (d *Draft) CheckPermissions(in string, ref cluster.Ref, path string) cluster.Faults {
	return d.checkPermissions(in, ref, definitionField{path: path})
}

// definitionField is the field of an owner that names or holds its definition.
type definitionField struct {
	path   string
	inline bool // the field is a template
}

func (d *Draft) checkPermissions(in string, ref cluster.Ref, field definitionField) cluster.Faults {
	def, c := d.Definition(ref), d.clusters[in]
	if c == nil {
		e, _ := d.Snap.Cluster(in)
		c = e.Value
	}
	if def == nil || c == nil {
		return nil
	}
	if field.inline {
		return c.CheckInlinePermissions(field.path, def)
	}
	return c.CheckPermissions(field.path, def)
}

// CheckStepPermissions does the same for the steps of a job, at a path.
func (d *Draft) CheckStepPermissions(in string, steps []cluster.Step, path string) (faults cluster.Faults) {
	fields := make([]definitionField, len(steps))
	for i := range steps {
		fields[i].path = fmt.Sprintf("%s[%d].definition", path, i)
	}
	return d.checkStepPermissions(in, steps, fields)
}

// checkStepPermissions does the same with the fields that hold the steps' definitions.
func (d *Draft) checkStepPermissions(in string, steps []cluster.Step, fields []definitionField) (
	faults cluster.Faults,
) {
	for i := range steps {
		faults = append(faults, d.checkPermissions(in, steps[i].Definition, fields[i])...)
	}
	return faults
}

// RequirePermissions refuses to start tasks again for which the cluster no longer has the permissions. It adds the
// cluster's revision as a precondition.
func (d *Draft) RequirePermissions(in string, faults cluster.Faults) error {
	if err := d.RequireCluster(in); err != nil {
		return err
	}
	return faults.Err()
}
