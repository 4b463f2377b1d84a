package output

import (
	"bytes"
	"io"
)

// Capture collects output that is printed later. Tables fit its target.
type Capture struct {
	bytes.Buffer
	// Target is where the output is printed.
	Target io.Writer
}

// Prepend inserts a text before the output.
func (c *Capture) Prepend(text string) {
	rest := c.String()
	c.Reset()
	c.WriteString(text + rest)
}
