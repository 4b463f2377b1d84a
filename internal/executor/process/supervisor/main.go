// Command supervisor is the supervisor and the launcher of the process executor as a small program. scripts/build
// embeds it in berth (package embedded). It takes the same arguments as berth's hidden subcommand.
package main

import (
	"os"

	"github.com/berthd/berth/internal/executor/process"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != process.Subcommand {
		os.Exit(process.Supervise(nil))
	}
	os.Exit(process.Supervise(os.Args[2:]))
}
