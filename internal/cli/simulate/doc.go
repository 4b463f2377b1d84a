// Package simulate implements berth simulate.
package simulate
