// Package redact hides values that nobody should read in what commands print.
package redact
