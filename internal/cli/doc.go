// Package cli is the command line: the tree of commands, its help pages and its reference.
package cli
