package transport

import "errors"

// Errors that an agent's connection returns, compared with errors.Is. All others mean that the server could
// not be reached or could not answer: the same call may work later.
var (
	// ErrSession says that the session is not the node's newest one, or that the server has none (P6.1). The agent
	// registers again.
	ErrSession = errors.New("the session is over")
	// ErrRefused says that the server refuses this agent: its node belongs to another owner, its credentials are wrong,
	// or the two have no common version. The agent retries rarely.
	ErrRefused = errors.New("the server refuses this agent")
	// ErrElsewhere says that this server cannot serve the agent and another one may: it went away, is going away, or is
	// cut off from the store. An unanswered call may have taken effect. The agent registers again, at another server,
	// and repeats it.
	ErrElsewhere = errors.New("another server has to be asked")
)
