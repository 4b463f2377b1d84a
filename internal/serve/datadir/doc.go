// Package datadir is the folder of a server: its identity, its secrets, and which store it uses.
package datadir
