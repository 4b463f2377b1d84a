// Package tables has the tables that several commands print.
package tables
