package reconciler_test

// The records of a task on one node stand under two keys, one for what is wanted and one for what was seen: of all its
// attempts there each holds that of one.

// wanted returns the revision of what stands where the attempt's desired record does or would, 0 for nothing.
func (w *world) wanted(r *record) uint64 {
	for _, other := range w.records {
		if other.id == r.id && other.DesiredRev != 0 && other.node() == r.node() {
			return other.DesiredRev
		}
	}
	return 0
}

// seen returns the revision of what stands where the attempt's status does or would, 0 for nothing.
func (w *world) seen(r *record) uint64 {
	for _, other := range w.records {
		if other.id == r.id && other.ObservedRev != 0 && other.node() == r.node() {
			return other.ObservedRev
		}
	}
	return 0
}
