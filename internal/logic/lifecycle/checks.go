package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// CheckRecord is the state of one check in a round. Agents persist it, so that neither a restart of the agent nor
// another server loses or repeats results. The zero value is a check without a result.
type CheckRecord struct {
	CheckState
	// Complaint is the check's answer when its present health began, empty if the check was healthy.
	Complaint string `json:"complaint,omitempty"`
	// UpdatedAt is the time of the newest ttl update, for a check of type ttl (boot-time clock), 0 for never.
	UpdatedAt time.Duration `json:"said,omitempty"`
}

// TTLWindow is the span in which ttl updates could have reached an agent (boot-time clock). It does not outlive the
// agent.
type TTLWindow struct {
	// Since is the time from which a server that passes updates on has been connected without a break, 0 if none is.
	Since time.Duration
	// Until is the time at which the newest request was sent that the server has answered.
	Until time.Duration
}

// Round holds the checks of one round of an attempt.
type Round struct {
	Checks  []cluster.Check
	Records []CheckRecord // one for each check, or none at all
	// Up is the time at which all containers ran. Through is the time at which all startup checks had succeeded. 0
	// means not yet (boot-time clock).
	Up, Through time.Duration
	TTLWindow   TTLWindow
	Now         time.Duration // boot-time clock
}

// record returns the record of a check; the zero value before its first result.
func (r *Round) record(i int) CheckRecord {
	if i < len(r.Records) {
		return r.Records[i]
	}
	return CheckRecord{}
}

// Probed returns the record after a report of the check. The reporter bounds how often the complaint changes, because
// each change is sent and stored.
func Probed(prev CheckRecord, state CheckState, complaint string) CheckRecord {
	if state.Health == cluster.HealthHealthy {
		complaint = ""
	}
	return CheckRecord{CheckState: state, Complaint: complaint, UpdatedAt: prev.UpdatedAt}
}

// TTLUpdated returns the record of a check of type ttl after an update that arrived now (boot-time clock).
func TTLUpdated(update cluster.TTLUpdate, message string, now time.Duration) CheckRecord {
	next := CheckRecord{UpdatedAt: now, Complaint: message}
	switch update {
	case cluster.TTLPass:
		next.Health, next.Complaint = cluster.HealthHealthy, ""
	case cluster.TTLWarn:
		next.Health = cluster.HealthWarning
	case cluster.TTLFail:
		next.Health = cluster.HealthFailing
	}
	return next
}

// Expiry is the state of a check's TTL.
type Expiry string

// Expiries.
const (
	Valid Expiry = "" // the last update is valid, or the check waits for one
	// no update arrived for the TTL; whether one could have arrived is not known yet
	Unconfirmed Expiry = "doubted"
	Expired     Expiry = "expired" // no update arrived for the TTL, and one could have arrived
)

// Expires judges the TTL of a check of type ttl. The TTL runs from the latest of three times: the newest update, the
// connection of a server that passes updates on, and the time from which the check counts. The silence of servers, or
// of an agent that did not run, is not the task's fault. The TTL has passed once a server answered a request that was
// sent after its end. at is the time of the next decision, 0 if only an event changes the result.
func Expires(r *Round, i int) (e Expiry, at time.Duration) {
	c := &r.Checks[i]
	began := r.Through
	if c.EffectiveMeaning() == cluster.MeaningStartup {
		began = r.Up
	}
	record := r.record(i)
	if c.Type != cluster.CheckTTL || began == 0 || r.TTLWindow.Since == 0 || record.Health == cluster.HealthFailing {
		return Valid, 0
	}
	if c.EffectiveMeaning() == cluster.MeaningStartup && record.Health == cluster.HealthHealthy {
		return Valid, 0 // the check is done
	}
	end := max(began, r.Up+time.Duration(c.InitialDelay), record.UpdatedAt, r.TTLWindow.Since) + ttlOrDefault(c.TTL)
	switch {
	case r.Now < end:
		return Valid, end
	case r.TTLWindow.Until < end:
		return Unconfirmed, 0
	}
	return Expired, 0
}

// TTLExpired returns the record of a check after its TTL has passed.
func TTLExpired(c *cluster.Check, prev CheckRecord) CheckRecord {
	complaint := "no update for " + cluster.Duration(ttlOrDefault(c.TTL)).String()
	if prev.UpdatedAt == 0 {
		complaint = "no update within " + cluster.Duration(ttlOrDefault(c.TTL)).String()
	}
	state := CheckState{Health: cluster.HealthFailing}
	return CheckRecord{CheckState: state, Complaint: complaint, UpdatedAt: prev.UpdatedAt}
}

func ttlOrDefault(d cluster.Duration) time.Duration {
	if d <= 0 {
		d = cluster.DefaultTTL
	}
	return time.Duration(d)
}

// Checked is the result of all checks of a round.
type Checked struct {
	// Health is the Overall health of the readiness checks; unknown if there are none, or none counts yet.
	Health cluster.Health
	// Started says that every startup check has succeeded.
	Started bool
	// Note names the checks that are not healthy, with their answers, or what a start waits for.
	Note string
	// Fatal, unless empty, is why the round has to end: a startup or liveness check is failing.
	Fatal string
}

// Judge combines the checks of a round.
func Judge(r *Round) Checked {
	out := Checked{Health: cluster.HealthUnknown, Started: true}
	var ready []CheckState
	var notes []string
	for i := range r.Checks {
		c, record := &r.Checks[i], r.record(i)
		if c.EffectiveMeaning() != cluster.MeaningStartup {
			continue
		}
		if record.Health == cluster.HealthHealthy {
			continue
		}
		out.Started = false
		if record.Health == cluster.HealthFailing && out.Fatal == "" {
			out.Fatal = fatalMessage(c, record)
		}
		notes = append(notes, "waiting for "+describeCheck(c, record))
	}
	if out.Started = out.Started || r.Through != 0; !out.Started {
		out.Note = strings.Join(notes, "; ")
		return out
	}
	out.Fatal, notes = "", nil
	for i := range r.Checks {
		c, record := &r.Checks[i], r.record(i)
		switch c.EffectiveMeaning() {
		case cluster.MeaningReadiness:
			ready = append(ready, record.CheckState)
			if severity(record.Health) > severity(cluster.HealthUnknown) {
				notes = append(notes, describeCheck(c, record))
			}
		case cluster.MeaningLiveness:
			if record.Health == cluster.HealthFailing && out.Fatal == "" {
				out.Fatal = fatalMessage(c, record)
			}
		case cluster.MeaningStartup:
		}
	}
	if len(ready) > 0 {
		out.Health = Overall(ready)
	}
	out.Note = strings.Join(notes, "; ")
	return out
}

// describeCheck names a check with its meaning and its answer.
func describeCheck(c *cluster.Check, record CheckRecord) string {
	text := fmt.Sprintf("%s check %s", c.EffectiveMeaning(), c.Name)
	switch {
	case record.Complaint != "":
		return text + ": " + record.Complaint
	case record.Health == "" && c.Type == cluster.CheckTTL:
		return text + ": no update yet"
	}
	return text
}

// fatalMessage says that a check ends the round.
func fatalMessage(c *cluster.Check, record CheckRecord) string {
	text := fmt.Sprintf("%s check %s failed", c.EffectiveMeaning(), c.Name)
	if n := record.Failures; n > 1 {
		text += fmt.Sprintf(" %d times in a row", n)
	}
	if record.Complaint != "" {
		text += ": " + record.Complaint
	}
	return text
}
