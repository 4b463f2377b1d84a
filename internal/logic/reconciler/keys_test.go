package reconciler_test

// The records of a task on one node have two keys, one for the desired record and one for the status. Each key holds
// the record of one of the task's attempts there.

// desiredKeyRev returns the revision of the record at the attempt's desired key, 0 for none.
func (w *world) desiredKeyRev(r *record) uint64 {
	for _, other := range w.records {
		if other.id == r.id && other.DesiredRev != 0 && other.node() == r.node() {
			return other.DesiredRev
		}
	}
	return 0
}

// observedKeyRev returns the revision of the record at the attempt's status key, 0 for none.
func (w *world) observedKeyRev(r *record) uint64 {
	for _, other := range w.records {
		if other.id == r.id && other.ObservedRev != 0 && other.node() == r.node() {
			return other.ObservedRev
		}
	}
	return 0
}
