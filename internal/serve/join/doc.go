// Package join lets a machine join a control plane with a token: it verifies the authority and gets a certificate.
package join
