package server

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/store/etcd"
)

// addHint adds what to do to a connection error of an external store, by the flags of the connection.
func (c *StoreConfig) addHint(err error) error {
	fault, ok := errors.AsType[*etcd.DialError](err)
	if !ok {
		return err
	}
	hint := ""
	switch fault.Fault {
	case etcd.FaultUnreachable:
		hint = "See that etcd runs, and that --store names the addresses that it serves clients at (its " +
			"--listen-client-urls)."
	case etcd.FaultPlain:
		hint = "That etcd is served without TLS: leave out --store-ca, --store-cert and --store-key."
	case etcd.FaultSecured:
		hint = "That etcd is served with TLS: name the authority of its certificate with --store-ca FILE, " +
			"or --store-ca system."
	case etcd.FaultOther:
		hint = "Does --store name etcd's port for clients (2379 as a rule), and not the one for its members (2380)?"
	case etcd.FaultAuthority:
		hint = fmt.Sprintf("--store-ca %s is not the authority of that etcd's certificate: name the file "+
			"that its --trusted-ca-file, or its operator, tells.", c.CA)
	case etcd.FaultServerName:
		hint = "Name in --store one of the addresses that etcd's certificate is for, or have it made for this one too."
	case etcd.FaultServerExpiry:
		hint = "Renew the certificate of that etcd (its --cert-file). Is the clock of this machine right?"
	case etcd.FaultCA:
		hint = "--store-ca wants a file with certificates in PEM that this user may read, or `system`."
	case etcd.FaultCertificate:
		hint = fmt.Sprintf("--store-cert %s and --store-key %s want a certificate and its key in PEM. "+
			"Renewed files are read at the next connection.", c.Cert, c.Key)
	case etcd.FaultRefused:
		hint = "That etcd asks for a client certificate: --store-cert and --store-key want one of the " +
			"authority of its --trusted-ca-file that has not expired."
	case etcd.FaultPassword:
		from := "--store-password-file " + c.PasswordFile
		if c.PasswordFile == "" {
			from = StorePasswordVariable
		}
		hint = fmt.Sprintf("See %s and --store-user %s; on etcd's side:  etcdctl user get %s;  etcdctl user passwd %s",
			from, c.User, c.User, c.User)
	case etcd.FaultUser:
		hint = "That etcd has users: name one with --store-user and --store-password-file."
	case etcd.FaultPermission:
		role := cmp.Or(c.User, "USER")
		hint = fmt.Sprintf("The user needs a role that may read and write these keys:  etcdctl role "+
			"grant-permission ROLE --prefix=true readwrite %s;  etcdctl user grant-role %s ROLE",
			cmp.Or(c.Prefix, "berth"), role)
	case etcd.FaultVersion:
		hint = "Berth needs etcd 3.5.13 or later, or 3.4.31 and later of 3.4: those before may lose changes " +
			"that a server waits for. Upgrade that etcd first."
	case etcd.FaultSilent:
		hint = "It is there, but does not answer. More than half of its members have to be up:  etcdctl " +
			"endpoint health --cluster"
	}
	return &hinted.Error{Err: err, Hint: hint}
}
