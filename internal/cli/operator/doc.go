// Package operator implements the commands for operators of servers: tokens, keys, snapshots and recovery.
package operator
