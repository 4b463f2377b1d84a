// Package stream implements the commands that exchange data with running tasks: logs, exec, attach, cp, port-forward
// and check.
package stream
