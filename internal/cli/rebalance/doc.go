// Package rebalance implements berth rebalance and its subcommands.
package rebalance
