// Package stream has the commands that talk with running tasks: logs, exec, attach, cp, port-forward and check.
package stream
