package peers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// WireVersion is the version of the messages between servers that this build sends, and WireMin the oldest that it
// still understands. Each message tells both; unknown fields are ignored.
const (
	WireVersion = 1
	WireMin     = 1
)

// PathPrefix is what all paths of the talk between servers begin with.
const PathPrefix = "/peer/"

const (
	pathDigest  = PathPrefix + "v1/digest"
	pathStreams = PathPrefix + "v1/streams"
	pathReasons = PathPrefix + "v1/reasons"
	pathGrounds = PathPrefix + "v1/grounds"

	pathSecretsKey = PathPrefix + "v1/secrets-key"
)

// Bounds of what one server reads from another.
const (
	// mostPulses bounds a digest; what is more goes in the next at once.
	mostPulses = 5000
	// mostEach bounds the attempts whose use a digest tells, and their containers that are told one by one, in the same
	// way: of about 450 bytes each with all their rates.
	mostEach = 10_000
	// mostNodes bounds the nodes that other servers may tell of.
	mostNodes    = 200_000
	maxDigest    = 8 << 20
	maxReply     = 64 << 10
	maxReasons   = 64 << 20
	maxOpen      = 4 << 20
	maxPromise   = 10 * 60 * 1e6 // of a next sign of life, in microseconds
	maxWireError = 4 << 10
)

// version is told with each message.
type version struct {
	Wire    int `json:"wire"`
	WireMin int `json:"wire_min"`
}

func ourVersion() version { return version{WireVersion, WireMin} }

// check returns errIncompatible where v and this build have nothing in common. Who sends none speaks version 1.
func (v version) check() error {
	newest, oldest := max(v.Wire, 1), max(v.WireMin, 1)
	if newest < WireMin || oldest > WireVersion {
		return fmt.Errorf("%w: the other %d to %d, this one %d to %d", errIncompatible, oldest, newest, WireMin,
			WireVersion)
	}
	return nil
}

// digest tells of the signs of life of the sender's own agents (P6.1).
type digest struct {
	version
	Server string `json:"server"`
	// Life differs with each start of the sender, and No grows with each digest that it sends to one server: one that
	// comes after a younger one is not taken.
	Life string `json:"life"`
	No   uint64 `json:"no"`
	// Pulses are taken only with an Echo of the receiver's present life. Without one the sender first asks for it by a
	// digest without pulses.
	Echo   *echo  `json:"echo,omitempty"`
	Pulses []beat `json:"pulses,omitempty"`
}

// echo lets the receiver tell by its own clock when a digest was made, however long it was on its way: not before
// the reply that it names plus the time since. Both are boot-time, in microseconds.
type echo struct {
	Life  string `json:"life"`  // of the receiver
	Clock int64  `json:"clock"` // what the receiver's last reply said
	Since int64  `json:"since"` // how long before the digest that reply was read, on the sender's clock
}

// beat is a sign of life of one node. The field names are short because a digest holds thousands.
type beat struct {
	Node    string `json:"n"`
	Session uint64 `json:"s"`
	Seq     uint64 `json:"q,omitempty"`
	// Age is how long before the digest it came, on the sender's boot-time clock; Next how long after it the
	// next was promised. In microseconds.
	Age  int64 `json:"a"`
	Next int64 `json:"x,omitempty"`
	// Stats is set when it changed. Of attempts it holds those that changed since the digest before, and all now and
	// then.
	Stats *cluster.NodeStats `json:"t,omitempty"`
}

// digestReply answers a digest.
type digestReply struct {
	version
	Server string `json:"server"`
	Life   string `json:"life"`
	Clock  int64  `json:"clock"` // the receiver's, see echo
}

// streamOpen is the first frame of a forwarded stream.
type streamOpen struct {
	version
	Server string                  `json:"server"` // who asks
	Node   string                  `json:"node"`
	Stream transport.StreamRequest `json:"stream"`
}

// reasonsReply answers why tasks wait. Without Changed the asker's copy stands.
type reasonsReply struct {
	version
	Life    string                 `json:"life"`
	Version uint64                 `json:"version"`
	Changed bool                   `json:"changed,omitempty"`
	Groups  []cluster.WaitingGroup `json:"groups,omitempty"`
}

// problem is the body of an answer that is no success.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem{http.StatusText(status), status, detail}) // the other end may be gone
}

// wireError is an answer of another server that is no success.
type wireError struct {
	status int
	detail string
}

// Error returns the other server's sentence.
func (e *wireError) Error() string { return e.detail }

func readProblem(resp *http.Response) error {
	var f problem
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxWireError))
	if json.Unmarshal(b, &f) != nil || f.Detail == "" {
		f.Detail = fmt.Sprintf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return &wireError{resp.StatusCode, f.Detail}
}
