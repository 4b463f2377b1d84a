// Package fetch has the API reads that several commands share.
package fetch
