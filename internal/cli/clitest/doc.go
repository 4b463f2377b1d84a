// Package clitest is a fake API server for tests of the command line. A test sets its answers.
package clitest
