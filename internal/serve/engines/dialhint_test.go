package engines

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/store/remote"
)

// TestStoreFaultsNameTheRemedy checks that each connection error of etcd and of Consul has a hint.
func TestStoreFaultsNameTheRemedy(t *testing.T) {
	t.Parallel()
	l := Location{CA: "ca.crt", Cert: "me.crt", Key: "me.key", User: "u", PasswordFile: "pw", Prefix: "prod/"}
	for fault, want := range map[remote.Fault]string{
		remote.FaultUnreachable: "--store", remote.FaultPlain: "leave out --store-ca",
		remote.FaultSecured:   "--store-ca FILE",
		remote.FaultOther:     "2379",
		remote.FaultAuthority: "--store-ca ca.crt", remote.FaultServerName: "--store",
		remote.FaultServerExpiry: "clock",
		remote.FaultCA:           "--store-ca",
		remote.FaultCertificate:  "--store-cert me.crt", remote.FaultRefused: "--store-cert",
		remote.FaultPassword: "--store-password-file pw",
		remote.FaultUser:     "--store-user", remote.FaultPermission: "readwrite prod/;  etcdctl user grant-role u",
		remote.FaultVersion: "3.5.13",
		remote.FaultSilent:  "etcdctl endpoint health",
	} {
		err := l.addHint(fmt.Errorf("connect to etcd: %w", &remote.DialError{Fault: fault, Err: errors.New("cause")}))
		if hint := (&session.Session{}).Hint(err); !strings.Contains(hint, want) ||
			!strings.Contains(err.Error(), "cause") {
			t.Errorf("%s: got %v with the hint %q, want %q in it", fault, err, hint, want)
		}
	}
	l.Scheme, l.TokenFile = SchemeConsul, "token"
	for fault, want := range map[remote.Fault]string{
		remote.FaultUnreachable: "client_addr", remote.FaultPlain: "leave out --store-ca",
		remote.FaultSecured: "--store-ca FILE", remote.FaultOther: "8500", remote.FaultAuthority: "--store-ca ca.crt",
		remote.FaultServerName: "--store", remote.FaultServerExpiry: "clock", remote.FaultCA: "--store-ca",
		remote.FaultCertificate: "--store-cert me.crt", remote.FaultRefused: "--store-cert",
		remote.FaultPassword: "--store-token-file token", remote.FaultUser: "--store-token-file token",
		remote.FaultPermission: `key_prefix "prod/berth"`, remote.FaultVersion: "1.15",
		remote.FaultSilent: "raft list-peers",
	} {
		err := l.addHint(fmt.Errorf("connect to consul: %w", &remote.DialError{Fault: fault, Err: errors.New("cause")}))
		if hint := (&session.Session{}).Hint(err); !strings.Contains(hint, want) {
			t.Errorf("%s of consul: got %v with the hint %q, want %q in it", fault, err, hint, want)
		}
	}
	if plain := errors.New("x"); l.addHint(plain) != plain || l.addHint(nil) != nil { //nolint:errorlint // the same error
		t.Error("another error was changed")
	}
}
