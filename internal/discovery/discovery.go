// Package discovery is the contract of a system outside of Berth in which other programs find the tasks of services.
//
// An agent registers its tasks at a Driver, under an owner that is the agent's own. A Registration is one address of
// one task. The system shows its State to others, and tests it by the registration's checks, or expects a report of the
// agent now and then. If the reports stop, as those of a dead agent do, the system counts the task as failing, and
// removes the registration some time later.
package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Errors of a Driver.
var (
	// ErrForeign refuses a change of a registration that belongs to another owner.
	ErrForeign = errors.New("the registration belongs to another program")
	// ErrNotRegistered says that the system does not have the registration, for example because it lost its data.
	ErrNotRegistered = errors.New("the registration does not exist")
)

// Registration is one address under which others find a task.
type Registration struct {
	// ID is unique in the system, and the same for the whole life of the registration.
	ID string
	// Name is the name of the service in the system.
	Name string
	// Address is an IP address of the node. Port is 0 if the task has none.
	Address string
	Port    int
	// Tags and Meta describe the registration for others. An empty list or map is nil.
	Tags []string
	Meta map[string]string
	// Checks are tests that the system makes itself. Without them it waits for reports of the agent.
	Checks []Check
}

// Check is a test of a task that the system makes itself: of type http, tcp or grpc.
type Check struct {
	Name string
	Type cluster.CheckType
	// Address is the host:port that is tested.
	Address string
	// Path is that of a check of type http. Service and TLS are those of a check of type grpc, as in cluster.Check.
	Path    string
	Service string
	TLS     bool
	// Interval is the time between two tests, and Timeout that of one. FailAfter failures in a row make it failing.
	Interval, Timeout time.Duration
	FailAfter         int
}

// State is what the agent knows about the health of a task.
type State struct {
	// Health is healthy, warning or failing.
	Health cluster.Health
	// Text says why, for people. Others may see a new text of the same health some minutes later.
	Text string
}

// Held is a registration of the owner as the system has it.
type Held struct {
	ID string
	// Digest is that of the registration as it was registered. It is empty if the system has it in another form: a part
	// was changed or removed, or it has to be registered again for another reason.
	Digest string
}

// Driver is one system, for one owner. It never changes or removes registrations of other owners. All methods may be
// called concurrently. A call blocks until the system has answered, or ctx ends. After an error the result is unknown.
// Calls about one registration take effect in their order, if each begins after the one before has returned.
type Driver interface {
	// Name names the kind of the system, such as "consul". It never changes.
	Name() string
	// Probe returns the version of the system, or why it cannot be used. The version is empty if it is not known.
	Probe(ctx context.Context) (version string, err error)
	// List returns the owner's registrations, ordered by ID.
	List(ctx context.Context) ([]Held, error)
	// Register makes the registration, or replaces the one with the same ID. It has the state at once, unless the
	// system has tested it before. The error is ErrForeign if the ID is that of another owner's registration.
	Register(ctx context.Context, r *Registration, s State) error
	// Report sets the state of a registration without checks, and counts as a sign of life. The error is
	// ErrNotRegistered if the system does not have it, and ErrForeign if it belongs to another owner.
	Report(ctx context.Context, id string, s State) error
	// Deregister removes a registration. It is no error if it does not exist. The error is ErrForeign if it belongs to
	// another owner.
	Deregister(ctx context.Context, id string) error
	// ReportInterval is the longest time between two reports of one registration, without which it would count as
	// failing. It is long enough for two reports in a row that fail.
	ReportInterval() time.Duration
}

// Digest returns a short text that differs for different registrations.
func (r *Registration) Digest() string { return DigestOf(r, r.DigestChecks()) }

// DigestChecks returns a short text that differs for different checks. It begins with their number and a dash.
func (r *Registration) DigestChecks() string {
	return fmt.Sprintf("%d-%s", len(r.Checks), digest(r.Checks))
}

// DigestOf returns the digest of a registration whose checks have a digest. The checks in the registration do not
// count. A system may keep the digest of the checks instead of the checks.
func DigestOf(r *Registration, checks string) string {
	visible := *r
	visible.Checks = nil
	if len(visible.Tags) == 0 {
		visible.Tags = nil
	}
	if len(visible.Meta) == 0 {
		visible.Meta = nil
	}
	return digest(struct {
		Registration

		Checks string
	}{visible, checks})
}

// digest returns 16 hexadecimal digits of the hash of a value.
func digest(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // the types above have a JSON form
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
