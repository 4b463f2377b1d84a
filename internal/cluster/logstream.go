package cluster

// LogStream is one of the two outputs of a program.
type LogStream string

// Outputs of a program.
const (
	StreamStdout LogStream = "stdout"
	StreamStderr LogStream = "stderr"
	StreamNone   LogStream = "" // of a line that only counts lost lines; a filter of lines selects both outputs with it
)

// Values returns every LogStream, in the order of the constants.
func (LogStream) Values() []LogStream { return []LogStream{StreamStdout, StreamStderr, StreamNone} }
