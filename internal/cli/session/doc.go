// Package session is what all commands share: streams, environment, global flags, the connection to a server, the
// names of objects and their completion, faults of usage and exit codes.
package session
