// Package sample is what TestRunOnRealGoTest runs; `./...` does not reach it.
package sample

import "testing"

func TestPasses(*testing.T) {}

func TestSkips(t *testing.T) { t.Skip("no reason but this") }

func TestFails(t *testing.T) { t.Error("as planned") }
