//go:build race

package etcd

// together is how many tests run at a time. The race detector makes a member compute so much that, with more of them,
// unwanted elections follow.
const together = 3
