// Package session has what all commands share: streams, environment, global flags, the connection to a server, names of
// objects and their completion, usage errors and exit codes.
package session
