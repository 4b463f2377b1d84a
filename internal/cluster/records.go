package cluster

// RecordsFirst is the version of the first release, the "v" of every record in the store that this build writes.
const RecordsFirst = 5

// RecordVersion returns the format version that a record must be written with: the lowest version whose builds support
// the whole record.
//
// A field that such builds may ignore without harm raises no version: the pace of a rollout, preferences among feasible
// nodes, facts that they do not store. So an upgrade can be taken back until a user uses a new feature. A field that
// would do harm gets the next version, which is returned for the records that use the field.
func RecordVersion(_ any) int { return RecordsFirst }

// Reads reports whether the server's build reads records of a version.
func (s *Server) Reads(version int) bool {
	return version >= s.RecordsMin && version <= s.Records
}
