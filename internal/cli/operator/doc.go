// Package operator has the commands of whoever runs the servers: tokens, keys, members, snapshots, recovery.
package operator
