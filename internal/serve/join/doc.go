// Package join has a machine join a cluster with a token: it pins the authority and gets a certificate.
package join
