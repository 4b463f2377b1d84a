// Package rebalance has the commands of rebalancing.
package rebalance
