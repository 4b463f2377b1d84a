package hostapi

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/berthd/berth/api"
)

const (
	// maxReadingAge is how long a reading answers requests while nothing changes. What the node uses is measured less
	// often.
	maxReadingAge = 100 * time.Millisecond
	// minReadingAge is how long a reading serves open event streams after a change. A stream that gets an older state
	// finds the change afterwards.
	minReadingAge = coalesceDelay / 2
)

// reading is the state of the node at one moment. All requests of the moment share it, so many clients cost the agent
// no more than one. It does not change.
type reading struct {
	number uint64
	state  api.HostState
	at     time.Time
	// changed and changedOwn are closed once the node, or what was made over this API, is no longer as in state.
	changed, changedOwn <-chan struct{}

	whole func() ([]byte, error)

	mu sync.Mutex
	// change is what changed since the reading of the number from. Most streams read in step, and ask for the same.
	from    uint64
	change  []byte
	differs bool
}

// hasChanged reports whether the state is an old one.
func (v *reading) hasChanged() bool {
	select {
	case <-v.changed:
		return true
	case <-v.changedOwn:
		return true
	default:
		return false
	}
}

// JSON returns the state as JSON. Callers do not change it.
func (v *reading) JSON() ([]byte, error) { return v.whole() }

// since returns what changed since an earlier reading, as the JSON of api.HostChange, and whether anything did.
func (v *reading) since(earlier *reading) (change []byte, differs bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.from != earlier.number {
		c, differs := difference(&earlier.state, &v.state)
		text, err := json.Marshal(&c)
		if err != nil {
			return nil, false, err
		}
		v.from, v.change, v.differs = earlier.number, text, differs
	}
	return v.change, v.differs, nil
}

// readings reads the state of the node, and holds the newest reading. Its methods may be called concurrently.
type readings struct {
	config *Config

	mu     sync.Mutex
	newest *reading
}

// fresh returns the state as it is now.
func (rs *readings) fresh() *reading {
	return rs.get(func(v *reading, age time.Duration) bool { return !v.hasChanged() && age < maxReadingAge })
}

// shared returns a state for an open stream, which may be a few milliseconds old.
func (rs *readings) shared() *reading {
	return rs.get(func(v *reading, age time.Duration) bool { return age < minReadingAge })
}

func (rs *readings) get(serves func(*reading, time.Duration) bool) *reading {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if v := rs.newest; v != nil && serves(v, time.Since(v.at)) {
		return v
	}
	v := rs.read()
	v.number = 1
	if rs.newest != nil {
		v.number = rs.newest.number + 1
	}
	rs.newest = v
	return v
}

// read reads the state of the node. The channels come first, so that no change is missed.
func (rs *readings) read() *reading {
	v := &reading{at: time.Now(), changed: rs.config.Node.Changed()}
	if rs.config.Driver != nil {
		v.changedOwn = rs.config.Driver.Changed()
	}
	v.state = rs.observe()
	v.whole = sync.OnceValues(func() ([]byte, error) { return json.Marshal(&v.state) })
	return v
}
