// Package embedded holds the program of command supervisor inside berth (ADR 0093).
//
// The file supervisor.bin of the tree is empty. scripts/build compiles command supervisor for the same machine and
// replaces the file for the compilation of berth, without writing to the tree. A berth that was compiled by the go
// command alone has no such program and uses itself.
package embedded

import _ "embed" // the directive needs it

//go:embed supervisor.bin
var supervisor string

// Supervisor returns the program, or an empty text if berth was compiled without it.
func Supervisor() string { return supervisor }
