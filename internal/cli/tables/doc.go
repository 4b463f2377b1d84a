// Package tables makes the tables of objects that several commands print.
package tables
