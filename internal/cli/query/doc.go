// Package query has the commands that show: status, ps, explain, inspect and events.
package query
