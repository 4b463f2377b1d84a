package cluster

import (
	"slices"
	"strings"
)

// maxOwnerNeeds limits Service.Needs and Job.Needs.
const maxOwnerNeeds = 16

// NeededOwner returns the service or job of the cluster that a need names, as "service/NAME" or "job/NAME". It returns
// false for any other text.
func NeededOwner(inCluster, need string) (OwnerRef, bool) {
	kind, name, _ := strings.Cut(need, "/")
	o := OwnerRef{Cluster: inCluster, Name: name}
	switch kind {
	case "service":
		o.Kind = KindService
	case "job":
		o.Kind = KindJob
	}
	return o, o.Kind != "" && ValidName(name)
}

// NeededOwners returns the services and jobs of the cluster that needs name.
func NeededOwners(inCluster string, needs []string) (all []OwnerRef) {
	for _, need := range needs {
		if o, ok := NeededOwner(inCluster, need); ok {
			all = append(all, o)
		}
	}
	return all
}

// AwaitsNeeds reports whether Needs were not met yet for the job's present run. They matter only to a run of which no
// task has begun.
func (j *Job) AwaitsNeeds() bool { return len(j.Needs) > 0 && j.NeedsMet.IsZero() }

// Need returns the text by which others need the owner; see NeededOwner.
func (o OwnerRef) Need() string { return strings.ToLower(string(o.Kind)) + "/" + o.Name }

// ownerNeeds demands that the needs of an owner name other services and jobs, each once.
func (c check) ownerNeeds(needs []string, own OwnerRef) {
	c = c.at("needs")
	c.must(len(needs) <= maxOwnerNeeds, "holds %d services and jobs, at most %d are allowed", len(needs), maxOwnerNeeds)
	for i, need := range needs {
		o, ok := NeededOwner(own.Cluster, need)
		switch {
		case !ok:
			c.element(i).fault("%q is neither a service nor a job: want service/NAME or job/NAME", clip(need))
		case o == own:
			c.element(i).fault("%s is the %s itself", need, strings.ToLower(string(own.Kind)))
		case slices.Index(needs, need) < i:
			c.element(i).fault("%s is there twice", need)
		}
	}
}
