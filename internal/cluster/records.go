package cluster

import "slices"

// Versions of records: the "v" of a value in the store.
const (
	// RecordsFirst is the version of every record that builds before RecordsScaled understand as it is meant.
	RecordsFirst = 1
	// RecordsScaled came with services of the mode daemon and with scaling. A build before it would take the count of
	// such a service for what it says, and stop its tasks.
	RecordsScaled = 2
	// RecordsPlaced came with the demands of placement beside constraints on a node's name, machine and labels, with
	// devices, gangs and taints. A build before it would place tasks where they must not be, give a device to two of
	// them, or end daemons on nodes where they belong.
	RecordsPlaced = 3
	// RecordsChecked came with checks of the types grpc and ttl and of the meanings startup and liveness. A build
	// before it would hand agents such a check without what makes it one, and they keep a definition for good.
	RecordsChecked = 4
	// RecordsNetworked came with the same build, and with networks of tasks. A build before it would place a task that
	// has one where there is none, and its agents would run it on the network of the node.
	RecordsNetworked = RecordsChecked
	// RecordsSecrets came with the same build, and with secrets. A build before it would place their tasks on nodes
	// that cannot hand them out.
	RecordsSecrets = RecordsChecked
	// RecordsVolumes came with the same build, and with volumes that nodes declare and such that stick to a task. A
	// build before it would place their tasks where the data is not, and its agents would take them for volumes that
	// all tasks of a node share.
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

// RecordVersion returns the version that a record has to be written with: the lowest whose builds do with it what it
// asks for. What such builds may leave out without harm (how fast a rollout goes, which of the nodes that are allowed
// is liked better, what they keep no record of) raises no version, so that an upgrade can be taken back until somebody
// uses what is new.
//
// Records of attempts and plans hold devices only where a definition asks for them, which says so itself.
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
		return placedIf(demandsMore(r.Constraints))
	case Cluster:
		return placedIf(demandsMore(r.Constraints))
	case *TaskDefinition:
		return r.recordVersion()
	case TaskDefinition:
		return r.recordVersion()
	case *Secret, Secret, *SecretKey, SecretKey:
		return RecordsSecrets
	case *Reservation, Reservation:
		return RecordsPlaced
	case *Host:
		return placedIf(len(r.Taints) > 0)
	case Host:
		return placedIf(len(r.Taints) > 0)
	}
	return RecordsFirst
}

func placedIf(more bool) int {
	if more {
		return RecordsPlaced
	}
	return RecordsFirst
}

func (s *Service) recordVersion() int {
	version := placedIf(s.Placement.demandsMore())
	if s.Mode == ModeDaemon || s.Scaling != nil {
		version = max(version, RecordsScaled)
	}
	return version
}

func stepsVersion(steps []Step) int {
	return placedIf(slices.ContainsFunc(steps, func(s Step) bool { return s.Gang != nil || s.Placement.demandsMore() }))
}

func (d *TaskDefinition) recordVersion() int {
	version := placedIf(d.wantsDevices())
	if slices.ContainsFunc(d.Checks, func(c Check) bool { return c.newer() }) {
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
	if d.Follows() {
		version = max(version, RecordsFollowing)
	}
	if d.Fetches() || d.Isolated() {
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

// demandsMore reports whether the placement holds a demand that came with RecordsPlaced. A wish is none.
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

// Seals says from when on the records of a domain's attempts carry a seal: the record seal/<domain> (P3.9). There is
// none while a server writes them without. Writer: the leader.
//
// It holds under the leader that wrote it. The next leader, whose epoch is the one after, takes it over. A later one
// begins anew: a server of a former build led in between, and may have written records without a seal.
type Seals struct {
	// Incarnation and Epoch are those of the leader that wrote it.
	Incarnation uint64 `json:"incarnation"`
	Epoch       uint64 `json:"epoch"`
	// After is a revision of the store. Each record that was written later has a seal.
	After uint64 `json:"after"`
}

// Is reports whether a leader wrote it.
func (s *Seals) Is(l *Leader) bool { return s.Incarnation == l.Incarnation && s.Epoch == l.Epoch }

// Reads reports whether the server's build reads records of a version.
func (s *Server) Reads(version int) bool {
	return version >= s.RecordsMin && version <= max(s.Records, RecordsFirst)
}
