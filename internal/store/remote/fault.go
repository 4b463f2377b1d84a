// Package remote has what drivers of stores that run elsewhere share: how they secure their connections, and how they
// say why a first contact failed.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"
)

// Fault classifies an obstacle on the way to a store that runs elsewhere, by the remedy for an operator.
type Fault string

// All faults. The text of the DialError names the endpoint, the files or the user.
const (
	FaultUnreachable  Fault = "unreachable"    // nothing answers there
	FaultPlain        Fault = "plain"          // it speaks plain http, and https was asked of it
	FaultSecured      Fault = "secured"        // the other way round
	FaultOther        Fault = "other"          // what answers is another program
	FaultAuthority    Fault = "authority"      // its certificate is of another authority
	FaultServerName   Fault = "server name"    // its certificate is for other names
	FaultServerExpiry Fault = "server expired" // its certificate ran out, or begins later
	FaultCA           Fault = "ca"             // the file of the authority cannot be used
	FaultCertificate  Fault = "certificate"    // the certificate that is shown to it, or its key, cannot be used
	FaultRefused      Fault = "refused"        // it does not take the certificate that is shown to it, or wants one
	FaultPassword     Fault = "password"       // the password or token is missing or wrong, or its user does not exist
	FaultUser         Fault = "user"           // it wants a user
	FaultPermission   Fault = "permission"     // the user or token may not do what a store does
	FaultVersion      Fault = "version"        // it is too old
	FaultSilent       Fault = "silent"         // it is there and does not answer: most likely it has no quorum
)

// DialError is an error of Dial with its fault.
type DialError struct {
	Fault Fault
	Err   error
}

// Error returns the cause. Callers choose the advice for the operator by the fault.
func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// HandshakeFault classifies an error of a TLS handshake.
func HandshakeFault(err error) Fault {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return FaultAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return FaultServerName
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return FaultServerExpiry
	}
	// A server without TLS answers in clear, or closes the connection.
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) {
		return FaultPlain
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // crypto/tls's name for an alert
		return FaultRefused
	}
	if IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return FaultSilent
	}
	return FaultOther
}

// IsTimeout reports whether an error is the end of a deadline of the network.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
