package transport

import "fmt"

// Speaks returns the version of a session with this agent: the lower of the two newest. If one side no longer
// understands that version, it returns an error that wraps ErrRefused and says which side to upgrade.
func (r *Registration) Speaks() (int, error) {
	switch {
	case r.Wire < WireMin:
		return 0, fmt.Errorf("%w: it speaks version %d of the protocol and this server %d to %d: upgrade the agent",
			ErrRefused, r.Wire, WireMin, WireVersion)
	case r.WireMin > WireVersion:
		return 0, fmt.Errorf("%w: it speaks versions %d to %d of the protocol and this server at most %d: "+
			"upgrade the server first",
			ErrRefused, r.WireMin, r.Wire, WireVersion)
	}
	return min(r.Wire, WireVersion), nil
}

// speaks checks the version of a server that does not check it itself.
func (w *Welcome) speaks() error {
	if w.Wire < WireMin {
		return fmt.Errorf("%w: the server speaks version %d of the protocol and this agent %d to %d: "+
			"upgrade the server first",
			ErrRefused, w.Wire, WireMin, WireVersion)
	}
	return nil
}
