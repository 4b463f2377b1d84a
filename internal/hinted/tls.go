package hinted

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
)

// TLS says what to do about a fault of a secured connection, or nothing.
func TLS(err error) string {
	text := err.Error()
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "The server's certificate is of an authority that this machine does not know. Berth's own is " +
			"named by --ca-file FILE (the server's pki/ca.crt)\n" +
			"or --ca-hash HASH (`berth server init` prints it); is it that of another control plane?"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "Name Berth's own authority with --ca-file FILE or --ca-hash HASH: its servers are not told " +
			"apart by their names."
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return "Is the clock of this machine right? A server renews its certificate while it runs; one that " +
			"was off for long joins again."
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok ||
		strings.Contains(text, "server gave HTTP response to HTTPS client") {
		return "What answers there does not speak https. Other machines are served on port 7071; http is " +
			"for loopback addresses."
	}
	switch {
	case strings.Contains(text, "HTTP request to an HTTPS server"):
		return "The address is one of https: write https:// in it."
	case strings.Contains(text, "does not belong to the authority"):
		return "The CA hash is that of another authority: take the token, or the hash, from the control " +
			"plane that this server belongs to."
	case strings.Contains(text, "tls: expired certificate"), strings.Contains(text, "tls: bad certificate"),
		strings.Contains(text, "tls: unknown certificate"):
		return "The server does not take this machine's certificate: join again with a new token (`berth " +
			"token create --join`)."
	}
	return ""
}
