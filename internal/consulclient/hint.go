package consulclient

import (
	"fmt"

	"github.com/berthd/berth/internal/store/remote"
)

// Flags are the flags of a command by which an operator names a Consul. The advice of Hint repeats them.
type Flags struct {
	// Address is the flag with the address, such as "--store". The other flags begin with it: "--store-ca".
	Address string
	// CA, Cert and Key are the values of the flags for TLS.
	CA, Cert, Key string
	// Token says where the token is from: the flag with its value, or a variable of the environment.
	Token string
	// Rules says which rules the token's policy needs, and names the page of the guide.
	Rules string
}

// Hint returns the advice for an operator after a fault.
func Hint(fault remote.Fault, f Flags) (hint string) {
	switch fault {
	case remote.FaultUnreachable:
		hint = fmt.Sprintf("Check that a Consul agent runs there, and that %s names its HTTP address (ports.http or "+
			"ports.https of Consul, client_addr).", f.Address)
	case remote.FaultPlain:
		hint = fmt.Sprintf("This port of Consul uses no TLS: leave out %[1]s-ca, %[1]s-cert and %[1]s-key, or name "+
			"its ports.https.", f.Address)
	case remote.FaultSecured:
		hint = fmt.Sprintf("This port of Consul uses TLS: name the authority of its certificate with %[1]s-ca FILE, "+
			"or %[1]s-ca system.", f.Address)
	case remote.FaultOther:
		hint = fmt.Sprintf("Check that %s names Consul's HTTP port (usually 8500), not its DNS, gRPC or server port.",
			f.Address)
	case remote.FaultAuthority:
		hint = fmt.Sprintf("%s-ca %s is not the authority of Consul's certificate: use the file of its "+
			"tls.defaults.ca_file, or ask its operator.", f.Address, f.CA)
	case remote.FaultServerName:
		hint = fmt.Sprintf("Name in %s an address that Consul's certificate covers, or add this address to the "+
			"certificate.", f.Address)
	case remote.FaultServerExpiry:
		hint = "Renew the certificate of this Consul, and check the clock of this machine."
	case remote.FaultCA:
		hint = f.Address + "-ca needs a readable file with certificates in PEM, or `system`."
	case remote.FaultCertificate:
		hint = fmt.Sprintf("%[1]s-cert %[2]s and %[1]s-key %[3]s need a certificate and its key in PEM. Berth reads "+
			"renewed files at the next connection.", f.Address, f.Cert, f.Key)
	case remote.FaultRefused:
		hint = fmt.Sprintf("This Consul requires a client certificate (verify_incoming): give %[1]s-cert and "+
			"%[1]s-key a valid one from its authority.", f.Address)
	case remote.FaultPassword, remote.FaultUser:
		hint = fmt.Sprintf("Check %s; with Consul's tool:  consul acl token read -self", f.Token)
	case remote.FaultPermission:
		hint = fmt.Sprintf("The token of %s needs a policy with  %s.", f.Token, f.Rules)
	case remote.FaultVersion:
		hint = "Berth needs Consul 1.15 or later. Upgrade Consul first."
	case remote.FaultSilent:
		hint = "The address accepts connections but Consul does not answer, or has no leader. More than half of its " +
			"servers must run:  consul operator raft list-peers"
	}
	return hint
}
