// Package query implements the commands that read objects: status, ps, explain, inspect and events.
package query
