// Package simulate has the command that shows what would become of a domain.
package simulate
