package cluster

// Versions of records: the "v" of a value in the store.
const (
	// RecordsFirst is the version of every record that builds before RecordsScaled understand as it is meant.
	RecordsFirst = 1
	// RecordsScaled came with services of the mode daemon and with scaling. A build before it would take the count of such a
	// service for what it says, and stop its tasks.
	RecordsScaled = 2
)

// RecordVersion returns the version that a record has to be written with: the lowest whose builds do with it what it asks for. What
// such builds may leave out without harm (how fast a rollout goes, what they keep no record of) raises no version, so
// that an upgrade can be taken back until somebody uses what is new.
func RecordVersion(record any) int {
	var s *Service
	switch r := record.(type) {
	case *Service:
		s = r
	case Service:
		s = &r
	}
	if s != nil && (s.Mode == ModeDaemon || s.Scaling != nil) {
		return RecordsScaled
	}
	return RecordsFirst
}

// Reads reports whether the server's build reads records of a version.
func (s *Server) Reads(version int) bool {
	return version >= s.RecordsMin && version <= max(s.Records, RecordsFirst)
}
