package cluster

import "slices"

// Versions of records: the "v" of a value in the store.
const (
	// RecordsFirst is the version of every record that builds before RecordsScaled understand as it is meant.
	RecordsFirst = 1
	// RecordsScaled came with services of the mode daemon and with scaling. An earlier build would take the count of
	// such a service literally, and stop its tasks.
	RecordsScaled = 2
	// RecordsPlaced came with placement requirements other than constraints on a node's name, machine and labels, and
	// with devices, gangs and taints. An earlier build would place tasks on forbidden nodes, give a device to two
	// tasks, or end daemons on nodes where they belong.
	RecordsPlaced = 3
	// RecordsChecked came with checks of the types grpc and ttl and of the meanings startup and liveness. A build
	// before it would hand agents such a check without what makes it one, and they keep a definition permanently.
	RecordsChecked = 4
	// RecordsNetworked came with the same build, and with networks of tasks. An earlier build would place such a task
	// on a node without the network, and its agents would run it on the node's own network.
	RecordsNetworked = RecordsChecked
	// RecordsSecrets came with the same build, and with secrets. A build before it would place their tasks on nodes
	// that cannot hand them out.
	RecordsSecrets = RecordsChecked
	// RecordsVolumes came with the same build, and with host volumes and sticky volumes. An earlier build would place
	// their tasks where the data is not, and its agents would take them for volumes that all tasks of a node share.
	RecordsVolumes = RecordsChecked
	// RecordsFollowing came with the same build, and with services that containers use and templates. A build before it
	// would start their tasks without the addresses, with templates for files.
	RecordsFollowing = RecordsChecked
	// RecordsConfined came with the same build, and with artifacts and isolation. A build before it would place their
	// tasks on nodes that begin them without.
	RecordsConfined = RecordsChecked
	// RecordsSealed came with the seals of records of attempts. No record is written with it. Servers of a build before
	// it write such records without a seal, and one is demanded only where all servers write it: see Seals.
	RecordsSealed = 5
)

// RecordVersion returns the format version that a record must be written with: the lowest version whose builds support
// the whole record.
//
// A field that such builds may ignore without harm raises no version: the pace of a rollout, preferences among feasible
// nodes, facts that they do not store. So an upgrade can be taken back until a user uses a new feature.
//
// Records of attempts and plans have devices only if a definition requests them, and the definition has a version
// itself.
func RecordVersion(record any) int {
	switch r := record.(type) {
	case *Service:
		return r.recordVersion()
	case Service:
		return r.recordVersion()
	case *Job:
		return stepsVersion(r.Steps)
	case Job:
		return stepsVersion(r.Steps)
	case *Cron:
		return stepsVersion(r.Job.Steps)
	case Cron:
		return stepsVersion(r.Job.Steps)
	case *Cluster:
		return placedVersionIf(demandsMore(r.Constraints))
	case Cluster:
		return placedVersionIf(demandsMore(r.Constraints))
	case *TaskDefinition:
		return r.recordVersion()
	case TaskDefinition:
		return r.recordVersion()
	case *Secret, Secret, *SecretKey, SecretKey:
		return RecordsSecrets
	case *Reservation, Reservation:
		return RecordsPlaced
	case *Host:
		return placedVersionIf(len(r.Taints) > 0)
	case Host:
		return placedVersionIf(len(r.Taints) > 0)
	}
	return RecordsFirst
}

func placedVersionIf(more bool) int {
	if more {
		return RecordsPlaced
	}
	return RecordsFirst
}

func (s *Service) recordVersion() int {
	version := placedVersionIf(s.Placement.demandsMore())
	if s.Mode == ModeDaemon || s.Scaling != nil {
		version = max(version, RecordsScaled)
	}
	return version
}

func stepsVersion(steps []Step) int {
	return placedVersionIf(slices.ContainsFunc(steps, func(s Step) bool {
		return s.Gang != nil || s.Placement.demandsMore()
	}))
}

func (d *TaskDefinition) recordVersion() int {
	version := placedVersionIf(d.wantsDevices())
	if slices.ContainsFunc(d.Checks, func(c Check) bool { return c.needsRecordsChecked() }) {
		version = max(version, RecordsChecked)
	}
	if d.OwnNetwork() != "" {
		version = max(version, RecordsNetworked)
	}
	if len(d.Secrets()) > 0 {
		version = max(version, RecordsSecrets)
	}
	if slices.ContainsFunc(d.Volumes, func(v Volume) bool { return v.HostVolume != "" || v.Sticky }) {
		version = max(version, RecordsVolumes)
	}
	if d.FollowsServices() {
		version = max(version, RecordsFollowing)
	}
	if d.UsesArtifacts() || d.Isolated() {
		version = max(version, RecordsConfined)
	}
	return version
}

func (d *TaskDefinition) wantsDevices() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool {
		return len(c.Resources.Devices) > 0 || c.Resources.Cores() > 0
	}) ||
		slices.ContainsFunc(d.Volumes, func(v Volume) bool { return v.Pin })
}

// demandsMore reports whether the placement holds a requirement that came with RecordsPlaced. Preferences do not count.
func (p *Placement) demandsMore() bool {
	return p.Pool != "" || p.Reservation != "" || len(p.Distinct) > 0 || demandsMore(p.Constraints) ||
		slices.ContainsFunc(p.Spread, func(s Spread) bool { return s.MaxSkew > 0 }) ||
		slices.ContainsFunc(p.Relations, func(r Relation) bool { return r.Required })
}

// demandsMore reports whether a constraint names an attribute that came with RecordsPlaced.
func demandsMore(constraints []Constraint) bool {
	return slices.ContainsFunc(constraints, func(c Constraint) bool {
		_, _, device := DeviceAttribute(c.Attribute)
		return device || c.Attribute == "node.pool"
	})
}

// Reads reports whether the server's build reads records of a version.
func (s *Server) Reads(version int) bool {
	return version >= s.RecordsMin && version <= max(s.Records, RecordsFirst)
}
