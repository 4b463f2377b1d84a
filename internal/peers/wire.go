package peers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// WireVersion is the version of the messages between servers that this build sends, and WireMin the oldest version that
// it understands. Each message carries both; unknown fields are ignored.
const (
	WireVersion = 1
	WireMin     = 1
)

// PathPrefix is the prefix of all paths of the protocol between servers.
const PathPrefix = "/peer/"

const (
	pathDigest        = PathPrefix + "v1/digest"
	pathStreams       = PathPrefix + "v1/streams"
	pathReasons       = PathPrefix + "v1/reasons"
	pathDecisionTrace = PathPrefix + "v1/grounds"
	pathLeader        = PathPrefix + "v1/leader"

	pathSecretsKey = PathPrefix + "v1/secrets-key"
)

// Limits of the data that one server reads from another.
const (
	// maxPulsesPerDigest limits a digest; the rest follows without a pause in the next one.
	maxPulsesPerDigest = 5000
	// maxAttemptsPerDigest limits the attempts with statistics in a digest, together with their containers with
	// statistics of their own. Each takes about 450 bytes with all rates.
	maxAttemptsPerDigest = 10_000
	// maxKnownNodes limits the nodes known from other servers.
	maxKnownNodes = 200_000
	maxDigest     = 8 << 20
	maxReply      = 64 << 10
	maxReasons    = 64 << 20
	maxOpen       = 4 << 20
	maxPromise    = 10 * 60 * 1e6 // of the time to the next sign of life, in microseconds
	maxWireError  = 4 << 10
)

// version is part of each message.
type version struct {
	Wire    int `json:"wire"`
	WireMin int `json:"wire_min"`
}

func ourVersion() version { return version{WireVersion, WireMin} }

// check returns errIncompatible if v and this build have no version in common.
func (v version) check() error {
	if v.Wire < WireMin || v.WireMin > WireVersion {
		return fmt.Errorf("%w: the other %d to %d, this one %d to %d", errIncompatible, v.WireMin, v.Wire, WireMin,
			WireVersion)
	}
	return nil
}

// digest carries the signs of life of the sender's own agents (P6.1).
type digest struct {
	version
	Server string `json:"server"`
	// Life identifies the process of the sender, and No grows with each digest to one server. A digest that arrives
	// after a newer one is ignored.
	Life string `json:"life"`
	No   uint64 `json:"no"`
	// Pulses are accepted only with an Echo of a reply since the receiver's start. Without such a reply the sender
	// first sends a digest without pulses.
	Echo   *echo  `json:"echo,omitempty"`
	Pulses []beat `json:"pulses,omitempty"`
}

// echo lets the receiver compute, by its own clock, when a digest was made, whatever its time in transit. The sender
// made the digest no earlier than the named reply plus Since. Both are boot-time, in microseconds.
type echo struct {
	Life  string `json:"life"`  // the receiver's
	Clock int64  `json:"clock"` // the clock of the receiver's last reply
	Since int64  `json:"since"` // the time from reading that reply to the digest, on the sender's clock
}

// beat is a sign of life of one node. The field names are short because a digest holds thousands.
type beat struct {
	Node    string `json:"n"`
	Session uint64 `json:"s"`
	Seq     uint64 `json:"q,omitempty"`
	// Age is the time from the sign of life to the digest, on the sender's boot-time clock. Next is the promised time
	// to the next one. Both are in microseconds.
	Age  int64 `json:"a"`
	Next int64 `json:"x,omitempty"`
	// Stats is set when the statistics changed. It holds the attempts that changed since the previous digest, and from
	// time to time all attempts.
	Stats *cluster.NodeStats `json:"t,omitempty"`
}

// digestReply answers a digest.
type digestReply struct {
	version
	Server string `json:"server"`
	Life   string `json:"life"`
	Clock  int64  `json:"clock"` // the receiver's process, see echo
}

// streamOpen is the first frame of a forwarded stream.
type streamOpen struct {
	version
	Server string                  `json:"server"` // the requesting server
	Node   string                  `json:"node"`
	Stream transport.StreamRequest `json:"stream"`
}

// reasonsReply answers why tasks wait. Without Changed the requesting server's copy is up to date.
type reasonsReply struct {
	version
	cluster.WaitingReport
	Life    string `json:"life"`
	Changed bool   `json:"changed,omitempty"`
}

// problem is the body of an error answer.
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

// wireError is an error answer of another server.
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
