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

// clusters are the clusters of a draft, with the permissions of their tasks.
type clusters struct {
	*transaction
	definitions *definitions
	written     map[string]*cluster.Cluster
	permissions []cluster.Permission // of new clusters that name none
}

// grant sets the permissions of a cluster that names none, and lets only admins change them. old is nil for a new
// cluster.
func (s *clusters) grant(old, c *cluster.Cluster) error {
	had := s.permissions
	if old != nil {
		had = old.Permissions
	}
	if c.Permissions == nil {
		c.Permissions = had
	}
	if s.Caller == nil || access.Rank(s.Caller.Role) >= access.Rank(cluster.RoleAdmin) ||
		cluster.SamePermissions(had, c.Permissions) {
		return nil
	}
	return respond.Problemf(http.StatusForbidden,
		"to change the permissions of cluster %s needs the role %s, and %s has the role %s: leave "+
			"permissions out, or ask an admin",
		c.Name, cluster.RoleAdmin, s.Caller.Who, s.Caller.Role)
}

// CheckPermissions returns a fault for each field of a definition that needs a missing permission of the cluster.
// Missing definitions or clusters have no such faults; another check refuses them. The draft already has the cluster's
// revision as a precondition.
func (s *clusters) CheckPermissions(in string, ref cluster.Ref, path string) cluster.Faults {
	return s.checkPermissions(in, ref, definitionField{path: path})
}

// definitionField is the field of an owner that names or holds its definition.
type definitionField struct {
	path   string
	inline bool // the field is a template
}

func (s *clusters) checkPermissions(in string, ref cluster.Ref, field definitionField) cluster.Faults {
	def, c := s.definitions.Definition(ref), s.written[in]
	if c == nil {
		e, _ := s.Snap.Cluster(in)
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
func (s *clusters) CheckStepPermissions(in string, steps []cluster.Step, path string) (faults cluster.Faults) {
	fields := make([]definitionField, len(steps))
	for i := range steps {
		fields[i].path = fmt.Sprintf("%s[%d].definition", path, i)
	}
	return s.checkStepPermissions(in, steps, fields)
}

// checkStepPermissions does the same with the fields that hold the steps' definitions.
func (s *clusters) checkStepPermissions(in string, steps []cluster.Step, fields []definitionField) (
	faults cluster.Faults,
) {
	for i := range steps {
		faults = append(faults, s.checkPermissions(in, steps[i].Definition, fields[i])...)
	}
	return faults
}

// RequirePermissions refuses to start tasks again for which the cluster no longer has the permissions. It adds the
// cluster's revision as a precondition.
func (s *clusters) RequirePermissions(in string, faults cluster.Faults) error {
	if err := s.RequireCluster(in); err != nil {
		return err
	}
	return faults.Err()
}
