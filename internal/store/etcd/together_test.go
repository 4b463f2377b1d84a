//go:build !race

package etcd

// together is how many tests run at a time: they wait for elections and limits more than they compute.
const together = 10
