// Package cli assembles the command line: the tree of commands, the manual pages and the reference.
package cli
