package engines

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/berthd/berth/internal/consulclient"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/store/remote"
)

// addHint adds what to do to a connection error of an external store, by the flags of the connection.
func (l Location) addHint(err error) error {
	fault, ok := errors.AsType[*remote.DialError](err)
	if !ok {
		return err
	}
	if l.Scheme == SchemeConsul {
		return &hinted.Error{Err: err, Hint: l.consulHint(fault.Fault)}
	}
	return &hinted.Error{Err: err, Hint: l.etcdHint(fault.Fault)}
}

// etcdHint returns what to do about a fault of an external etcd.
func (l Location) etcdHint(fault remote.Fault) (hint string) {
	switch fault {
	case remote.FaultUnreachable:
		hint = "Check that etcd runs, and that --store names its client addresses (--listen-client-urls of etcd)."
	case remote.FaultPlain:
		hint = "This etcd uses no TLS: leave out --store-ca, --store-cert and --store-key."
	case remote.FaultSecured:
		hint = "This etcd uses TLS: name the authority of its certificate with --store-ca FILE, or " +
			"--store-ca system."
	case remote.FaultOther:
		hint = "Check that --store names etcd's client port (usually 2379), not its peer port (2380)."
	case remote.FaultAuthority:
		hint = fmt.Sprintf("--store-ca %s is not the authority of etcd's certificate: use the file of its "+
			"--trusted-ca-file, or ask its operator.", l.CA)
	case remote.FaultServerName:
		hint = "Name in --store an address that etcd's certificate covers, or add this address to " +
			"the certificate."
	case remote.FaultServerExpiry:
		hint = "Renew the certificate of this etcd (its --cert-file), and check the clock of this " +
			"machine."
	case remote.FaultCA:
		hint = "--store-ca needs a readable file with certificates in PEM, or `system`."
	case remote.FaultCertificate:
		hint = fmt.Sprintf("--store-cert %s and --store-key %s need a certificate and its key in PEM. Berth "+
			"reads renewed files at the next connection.", l.Cert, l.Key)
	case remote.FaultRefused:
		hint = "This etcd requires a client certificate: give --store-cert and --store-key a valid " +
			"one from the authority of etcd's --trusted-ca-file."
	case remote.FaultPassword:
		from := "--store-password-file " + l.PasswordFile
		if l.PasswordFile == "" {
			from = PasswordVariable
		}
		hint = fmt.Sprintf("Check %s and --store-user %s; with etcd's tool:  etcdctl user get %s;  etcdctl user "+
			"passwd %s",
			from, l.User, l.User, l.User)
	case remote.FaultUser:
		hint = "This etcd requires a user: name one with --store-user and --store-password-file."
	case remote.FaultPermission:
		role := cmp.Or(l.User, "USER")
		hint = fmt.Sprintf("The user needs a role that may read and write these keys:  etcdctl role "+
			"grant-permission ROLE --prefix=true readwrite %s;  etcdctl user grant-role %s ROLE",
			cmp.Or(l.Prefix, "berth"), role)
	case remote.FaultVersion:
		hint = "Berth needs etcd 3.5.13 or later, or 3.4.31 or later of 3.4: older versions may " +
			"lose changes that a server waits for. Upgrade etcd first."
	case remote.FaultSilent:
		hint = "The address accepts connections but etcd does not answer. More than half of its " +
			"members must run:  etcdctl endpoint health --cluster"
	}
	return hint
}

// consulHint returns what to do about a fault of Consul.
func (l Location) consulHint(fault remote.Fault) (hint string) {
	token := "--store-token-file " + l.TokenFile
	if l.TokenFile == "" {
		token = TokenVariable
	}
	hint = consulclient.Hint(fault, consulclient.Flags{
		Address: "--store", CA: l.CA, Cert: l.Cert, Key: l.Key, Token: token,
		Rules: fmt.Sprintf("key_prefix %q { policy = \"write\" }  (docs/guide/consul.md)", l.Prefix+"berth"),
	})
	if fault == remote.FaultOther {
		hint += " Check that it knows the datacenter of --store-datacenter."
	}
	return hint
}
