package sim

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// specChecker checks that services, jobs and crons are as users wrote them, and that crons make each job once.
type specChecker struct {
	*observation
	wantedSpecs map[string]*wantedSpec // specs, by key
	cronJobs    map[string]bool        // jobs that crons made
}

// wantedSpec is what a user wants of one record.
type wantedSpec struct {
	values       map[string]bool // all values that were tried
	acknowledged string
}

// noteWanted records a value that a user is about to write.
func (v *specChecker) noteWanted(key string, value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.wantedSpecs[key]
	if a == nil {
		a = &wantedSpec{values: map[string]bool{}}
		v.wantedSpecs[key] = a
	}
	a.values[string(value)] = true
}

// noteAcknowledged records that a user's write was acknowledged.
func (v *specChecker) noteAcknowledged(key string, value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wantedSpecs[key].acknowledged = string(value)
}

// applySpec processes a change of a user's record. Only users write such a record, and the control plane removes it
// once it is deleted.
func (v *specChecker) applySpec(key string, c *store.Change, was store.Record) {
	a := v.wantedSpecs[c.Key]
	switch {
	case v.restored:
	case v.acceptControlPlaneWrite(key, c, was): // the control plane took a version back, or made the job of a cron
		if a != nil {
			a.acknowledged = string(c.Value)
		}
	case c.Deleted:
		var s struct{ Deleted bool }
		if d, err := store.Decode[struct{ Deleted bool }](was.Value); err == nil {
			s = *d
		}
		if !s.Deleted {
			v.breach("spec-lost", "%s was removed, and no user deleted it", key)
		}
		if a != nil {
			a.acknowledged = ""
		}
	case a == nil || !a.values[string(c.Value)]:
		v.breach("spec-lost", "%s is %s, which no user requested", key, c.Value)
	}
}

// acceptControlPlaneWrite reports whether the control plane may make a change of a spec: it takes a failed version
// back, notes that the needs of a job are met, cancels a job at its deadline, deletes one that was kept for long
// enough, and makes, cancels and removes the jobs of crons.
func (v *specChecker) acceptControlPlaneWrite(key string, c *store.Change, was store.Record) bool {
	if strings.HasPrefix(key, "job/") {
		value := c.Value
		if c.Deleted {
			value = was.Value
		}
		j, err := store.Decode[cluster.Job](value)
		if err == nil && !c.Deleted && j.Cron == "" && differByControlPlane(c.Value, was.Value) {
			return true
		}
		if err != nil || j.Cron == "" {
			return false
		}
		if was.Key == "" && !c.Deleted && !v.overwritten {
			if v.cronJobs[key] {
				v.breach("moment-twice", "%s was made again", key)
			}
			v.cronJobs[key] = true
			v.actions.CronJobs++
		}
		return true
	}
	if c.Deleted || !strings.HasPrefix(key, "service/") {
		return false
	}
	s, err := store.Decode[cluster.Service](c.Value)
	old, bad := store.Decode[cluster.Service](was.Value)
	if err != nil || bad != nil || s.Rollout.Reverted == 0 || s.Rollout.Reverted != old.Generation ||
		s.Generation <= old.Generation {
		return false
	}
	v.actions.Reverts++
	return true
}

// differByControlPlane reports whether a record of a job differs from an earlier one at most in what the control plane
// writes by itself: when the needs of the job were met, that its deadline has passed, and that it was kept for long
// enough.
func differByControlPlane(now, earlier []byte) bool {
	x, errA := store.Decode[cluster.Job](now)
	y, errB := store.Decode[cluster.Job](earlier)
	if errA != nil || errB != nil {
		return false
	}
	plain := *x
	if len(x.Needs) > 0 {
		plain.NeedsMet = y.NeedsMet
	}
	if x.Deadline > 0 && x.CancelReason == cluster.ReasonDeadline {
		plain.Cancelled, plain.CancelReason = y.Cancelled, y.CancelReason
	}
	if x.Deleted && !y.Deleted && !x.Updated.IsZero() {
		plain.Deleted = false
	}
	plain.Updated = y.Updated
	return reflect.DeepEqual(&plain, y)
}

// applyCronStatus processes the status of a cron. Its last moment goes back only with the store.
func (v *specChecker) applyCronStatus(rest string, c *store.Change, was store.Record) {
	if c.Deleted || was.Key == "" || v.restored {
		return
	}
	now, err := store.Decode[cluster.CronStatus](c.Value)
	old, bad := store.Decode[cluster.CronStatus](was.Value)
	if err == nil && bad == nil && now.Last.Before(old.Last) {
		v.breach("moment-twice", "%s went back from %v to %v", rest, old.Last, now.Last)
	}
}

// checkSpecs checks at the end that acknowledged writes of users still exist.
func (v *specChecker) checkSpecs() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.restored {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(v.wantedSpecs)) {
		a := v.wantedSpecs[key]
		r, exists := v.records[strings.TrimPrefix(key, string(prefix))]
		if a.acknowledged != "" && !exists {
			v.breach("spec-lost", "%s is not there: %s", key, a.acknowledged)
		}
		if s, err := store.Decode[cluster.Service](r.Value); err == nil && s.Rollout.Reverted != 0 {
			continue // the leader reverted the write before its acknowledgement
		}
		if a.acknowledged != "" && exists && string(r.Value) != a.acknowledged &&
			!differByControlPlane(r.Value, []byte(a.acknowledged)) {
			v.breach("spec-lost", "%s is %s, and the user's answer was %s", key, r.Value, a.acknowledged)
		}
	}
}
