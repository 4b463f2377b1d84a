package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Look is what one check of a round has shown so far. Agents persist it: so neither an agent's new life nor another
// server loses or makes up what was seen or said. The zero value is a check without a result.
type Look struct {
	CheckState
	// Complaint is what the check answered when its health came to be what it is, empty where that was well.
	Complaint string `json:"complaint,omitempty"`
	// Said is when the newest word came, for a check of type ttl (boot-time clock), 0 for never.
	Said time.Duration `json:"said,omitempty"`
}

// Hearing is since when an agent could have been told a word, and when it last knew that (boot-time clock). It does not
// outlive the agent.
type Hearing struct {
	// Since is since when a server that could pass words on has been there without a break, 0 where none is.
	Since time.Duration
	// Until is when the newest request was sent that the server has answered since.
	Until time.Duration
}

// Round is a round of an attempt as far as its checks go.
type Round struct {
	Checks []cluster.Check
	Looks  []Look // one for each check, or none at all
	// Up is when all containers ran, Through when all checks of the meaning startup had succeeded, 0 for not yet
	// (boot-time clock).
	Up, Through time.Duration
	Hearing     Hearing
	Now         time.Duration // boot-time clock
}

// look returns what a check has shown.
func (r *Round) look(i int) Look {
	if i < len(r.Looks) {
		return r.Looks[i]
	}
	return Look{}
}

// Looked returns the look after a further state of the check. The complaint is kept for as long as the health is the
// same: some differ each time, and each difference would be told and stored.
func Looked(prev Look, state CheckState, complaint string) Look {
	next := Look{CheckState: state, Complaint: complaint, Said: prev.Said}
	if state.Health == prev.Health {
		next.Complaint = prev.Complaint
	}
	if state.Health == cluster.HealthHealthy {
		next.Complaint = ""
	}
	return next
}

// Heard returns the look of a check of type ttl after a word that came now (boot-time clock).
func Heard(word cluster.Word, message string, now time.Duration) Look {
	next := Look{Said: now, Complaint: message}
	switch word {
	case cluster.WordPass:
		next.Health, next.Complaint = cluster.HealthHealthy, ""
	case cluster.WordWarn:
		next.Health = cluster.HealthWarning
	case cluster.WordFail:
		next.Health = cluster.HealthFailing
	}
	return next
}

// Expiry is what has become of the TTL of a check.
type Expiry string

// Expiries.
const (
	Stands Expiry = "" // the word stands, or the check waits for one
	// nothing was heard for the TTL; whether something could have been heard is not known yet
	Doubted Expiry = "doubted"
	Expired Expiry = "expired" // nothing was heard for the TTL, and something could have been
)

// Expires judges the TTL of a check that others than its agent look after. It runs from the newest word, from when a
// server was there to pass words on, or from when the check began to count, whichever is the latest: silence of
// servers, or of an agent that was not there, is not the task's. It has passed once a server answered a request that
// was sent after its end. At is when to look again, 0 for when something happens.
func Expires(r *Round, i int) (e Expiry, at time.Duration) {
	c := &r.Checks[i]
	began := r.Through
	if c.Means() == cluster.MeaningStartup {
		began = r.Up
	}
	look := r.look(i)
	if c.Type != cluster.CheckTTL || began == 0 || r.Hearing.Since == 0 || look.Health == cluster.HealthFailing {
		return Stands, 0
	}
	if c.Means() == cluster.MeaningStartup && look.Health == cluster.HealthHealthy {
		return Stands, 0 // it is over
	}
	end := max(began, r.Up+time.Duration(c.InitialDelay), look.Said, r.Hearing.Since) + orTTL(c.TTL)
	switch {
	case r.Now < end:
		return Stands, end
	case r.Hearing.Until < end:
		return Doubted, 0
	}
	return Expired, 0
}

// Silent returns the look of a check whose TTL has passed.
func Silent(c *cluster.Check, prev Look) Look {
	complaint := "nothing was said for " + cluster.Duration(orTTL(c.TTL)).String()
	if prev.Said == 0 {
		complaint = "nothing was said within " + cluster.Duration(orTTL(c.TTL)).String()
	}
	return Look{CheckState: CheckState{Health: cluster.HealthFailing}, Complaint: complaint, Said: prev.Said}
}

func orTTL(d cluster.Duration) time.Duration {
	if d <= 0 {
		d = cluster.DefaultTTL
	}
	return time.Duration(d)
}

// Checked is what the checks of a round say together.
type Checked struct {
	// Health is that of the checks of the meaning readiness, by Overall; unknown where there are none, or none counts
	// yet.
	Health cluster.Health
	// Started says that every check of the meaning startup has succeeded.
	Started bool
	// Note says which checks are not well and what they answered, or what a start waits for.
	Note string
	// Fatal, unless empty, is why the round has to end: a check of the meaning startup or liveness is failing.
	Fatal string
}

// Judge joins what the checks of a round have shown.
func Judge(r *Round) Checked {
	out := Checked{Health: cluster.HealthUnknown, Started: true}
	var ready []CheckState
	var notes []string
	for i := range r.Checks {
		c, look := &r.Checks[i], r.look(i)
		if c.Means() != cluster.MeaningStartup {
			continue
		}
		if look.Health == cluster.HealthHealthy {
			continue
		}
		out.Started = false
		if look.Health == cluster.HealthFailing && out.Fatal == "" {
			out.Fatal = fatal(c, look)
		}
		notes = append(notes, "waits for "+told(c, look))
	}
	if out.Started = out.Started || r.Through != 0; !out.Started {
		out.Note = strings.Join(notes, "; ")
		return out
	}
	out.Fatal, notes = "", nil
	for i := range r.Checks {
		c, look := &r.Checks[i], r.look(i)
		switch c.Means() {
		case cluster.MeaningReadiness:
			ready = append(ready, look.CheckState)
			if badness(look.Health) > badness(cluster.HealthUnknown) {
				notes = append(notes, told(c, look))
			}
		case cluster.MeaningLiveness:
			if look.Health == cluster.HealthFailing && out.Fatal == "" {
				out.Fatal = fatal(c, look)
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

// told is a check with its meaning and what it answered.
func told(c *cluster.Check, look Look) string {
	text := fmt.Sprintf("%s check %s", c.Means(), c.Name)
	switch {
	case look.Complaint != "":
		return text + ": " + look.Complaint
	case look.Health == "" && c.Type == cluster.CheckTTL:
		return text + ": nothing was said yet"
	}
	return text
}

// fatal says that a check ends the round.
func fatal(c *cluster.Check, look Look) string {
	text := fmt.Sprintf("%s check %s failed", c.Means(), c.Name)
	if n := look.Failures; n > 1 {
		text += fmt.Sprintf(" %d times in a row", n)
	}
	if look.Complaint != "" {
		text += ": " + look.Complaint
	}
	return text
}
