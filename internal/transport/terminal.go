package transport

import (
	"errors"
	"fmt"
)

// TerminalVersion is the first version in which an agent knows the kinds of streams below. An earlier one would end
// them without a word, so it is not asked.
const TerminalVersion = 4

// Kinds of streams that people have at their terminals, in frames both ways. Each ends with ChannelExit.
const (
	// StreamTerminal is a command on a terminal: what is typed in ChannelStdin, sizes in ChannelResize, what it shows
	// in ChannelStdout.
	StreamTerminal StreamKind = "terminal"
	// StreamForward is one connection to a port of a task. An empty frame of ChannelStdin or ChannelStdout ends its
	// direction.
	StreamForward StreamKind = "forward"
	// StreamCopyOut carries an archive of package archive from the node in ChannelStdout, with what was left out, a
	// line each, in ChannelStderr; StreamCopyIn one to the node in ChannelStdin, the last frame empty, and what came of
	// it, as CopyEnd in JSON, in ChannelStdout.
	StreamCopyOut StreamKind = "copy-out"
	StreamCopyIn  StreamKind = "copy-in"
	// StreamAttach is the output of a running container as it comes, until its end. Names in ChannelSignal are sent to
	// its program.
	StreamAttach StreamKind = "attach"
)

// ErrOldAgent says that the node's agent is of a build that does not know what is asked.
var ErrOldAgent = errors.New("the node's agent is of an older build, which cannot do that: upgrade it")

// Knows returns an error that wraps ErrOldAgent where an agent that speaks a version does not know a kind of streams.
func (k StreamKind) Knows(version int) error {
	switch k {
	case StreamTerminal, StreamForward, StreamCopyOut, StreamCopyIn, StreamAttach:
		if version < TerminalVersion {
			return fmt.Errorf("%w (it speaks version %d of the protocol, and %q needs %d)", ErrOldAgent, version, k,
				TerminalVersion)
		}
	}
	return nil
}

// TerminalSize is how much text a terminal shows.
type TerminalSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// TerminalRequest is a command to run on a terminal.
type TerminalRequest struct {
	Command []string     `json:"command"`
	Size    TerminalSize `json:"size"`
	// Type is what TERM says, or empty.
	Type string `json:"type,omitempty"`
}

// ForwardRequest names a port of a task: the name of one of its definition's, or a number.
type ForwardRequest struct {
	Port string `json:"port"`
}

// CopyRequest names a file or folder as the container's program sees it; what is no absolute path is below the folder
// that the program stands in.
type CopyRequest struct {
	Path string `json:"path"`
	// Follow copies what links point to instead of the links.
	Follow bool `json:"follow,omitempty"`
}

// CopyEnd is what came of a copy to a node.
type CopyEnd struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// AttachRequest says what of the output comes first.
type AttachRequest struct {
	// Tail is how many of the newest lines come first, 0 none.
	Tail int `json:"tail,omitempty"`
}
