package transport

// Kinds of interactive streams, with frames both ways. Each ends with ChannelExit.
const (
	// StreamTerminal is a command on a terminal: input in ChannelStdin, sizes in ChannelResize, output in
	// ChannelStdout.
	StreamTerminal StreamKind = "terminal"
	// StreamForward is one connection to a port of a task. An empty frame of ChannelStdin or ChannelStdout ends its
	// direction.
	StreamForward StreamKind = "forward"
	// StreamCopyOut carries an archive of package archive from the node in ChannelStdout, and a line for each skipped
	// file in ChannelStderr. StreamCopyIn carries an archive to the node in ChannelStdin, the last frame empty, and the
	// result, CopyEnd as JSON, in ChannelStdout.
	StreamCopyOut StreamKind = "copy-out"
	StreamCopyIn  StreamKind = "copy-in"
	// StreamAttach follows the output of a running container until its end. Signals named in ChannelSignal are sent to
	// its program.
	StreamAttach StreamKind = "attach"
)

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// TerminalRequest is a command to run on a terminal.
type TerminalRequest struct {
	Command []string     `json:"command"`
	Size    TerminalSize `json:"size"`
	// Type is the value of TERM, or empty.
	Type string `json:"type,omitempty"`
}

// ForwardRequest names a port of a task, by its name in the definition or by its number.
type ForwardRequest struct {
	Port string `json:"port"`
}

// CopyRequest names a file or folder in the container. A relative path starts at the program's working directory.
type CopyRequest struct {
	Path string `json:"path"`
	// Follow copies the targets of links instead of the links.
	Follow bool `json:"follow,omitempty"`
}

// CopyEnd is the result of a copy to a node.
type CopyEnd struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// AttachRequest selects earlier output to begin with.
type AttachRequest struct {
	// Tail is the number of existing lines to send first, 0 for none.
	Tail int `json:"tail,omitempty"`
}
