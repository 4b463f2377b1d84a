// Command launcher is what berth is inside containers, for tests whose own binary needs libraries.
package main

import (
	"os"

	"github.com/berthd/berth/internal/executor/outlive"
)

func main() { os.Exit(outlive.Become(os.Args[2:])) }
