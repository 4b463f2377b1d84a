// Package redact removes secrets from texts that commands print.
package redact
