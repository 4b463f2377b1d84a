// Package clitest is a server for tests of the command line: it answers from values that a test sets.
package clitest
