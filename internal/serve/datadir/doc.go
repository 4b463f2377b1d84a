// Package datadir reads and writes the files of a data directory: the server's identity, its secrets and the location
// of its store.
package datadir
