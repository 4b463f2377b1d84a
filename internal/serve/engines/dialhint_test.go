package engines

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/store/etcd"
)

// TestStoreFaultsNameTheRemedy checks that each connection error of etcd has a hint.
func TestStoreFaultsNameTheRemedy(t *testing.T) {
	t.Parallel()
	l := Location{CA: "ca.crt", Cert: "me.crt", Key: "me.key", User: "u", PasswordFile: "pw", Prefix: "prod/"}
	for fault, want := range map[etcd.Fault]string{
		etcd.FaultUnreachable: "--store", etcd.FaultPlain: "leave out --store-ca", etcd.FaultSecured: "--store-ca FILE",
		etcd.FaultOther:     "2379",
		etcd.FaultAuthority: "--store-ca ca.crt", etcd.FaultServerName: "--store", etcd.FaultServerExpiry: "clock",
		etcd.FaultCA:          "--store-ca",
		etcd.FaultCertificate: "--store-cert me.crt", etcd.FaultRefused: "--store-cert",
		etcd.FaultPassword: "--store-password-file pw",
		etcd.FaultUser:     "--store-user", etcd.FaultPermission: "readwrite prod/;  etcdctl user grant-role u",
		etcd.FaultVersion: "3.5.13",
		etcd.FaultSilent:  "etcdctl endpoint health",
	} {
		err := l.addHint(fmt.Errorf("connect to etcd: %w", &etcd.DialError{Fault: fault, Err: errors.New("cause")}))
		if hint := (&session.Session{}).Hint(err); !strings.Contains(hint, want) ||
			!strings.Contains(err.Error(), "cause") {
			t.Errorf("%s: got %v with the hint %q, want %q in it", fault, err, hint, want)
		}
	}
	if plain := errors.New("x"); l.addHint(plain) != plain || l.addHint(nil) != nil { //nolint:errorlint // the same error
		t.Error("another error was changed")
	}
}
