package transport

import (
	"cmp"
	"fmt"
)

// Speaks returns the version of a session with this agent: the lower of the two newest. If one side no longer
// understands that version, it returns an error that wraps ErrRefused and says which side to upgrade.
func (r *Registration) Speaks() (int, error) {
	newest, oldest := cmp.Or(r.Wire, 1), cmp.Or(r.WireMin, 1)
	switch {
	case newest < WireMin:
		return 0, fmt.Errorf("%w: it speaks version %d of the protocol and this server %d to %d: upgrade the agent",
			ErrRefused, newest, WireMin, WireVersion)
	case oldest > WireVersion:
		return 0, fmt.Errorf("%w: it speaks versions %d to %d of the protocol and this server at most %d: "+
			"upgrade the server first",
			ErrRefused, oldest, newest, WireVersion)
	}
	return min(newest, WireVersion), nil
}

// speaks checks the version of a server that does not check it itself.
func (w *Welcome) speaks() error {
	if v := cmp.Or(w.Wire, 1); v < WireMin {
		return fmt.Errorf("%w: the server speaks version %d of the protocol and this agent %d to %d: "+
			"upgrade the server first",
			ErrRefused, v, WireMin, WireVersion)
	}
	return nil
}
