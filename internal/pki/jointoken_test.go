package pki

import (
	"errors"
	"strings"
	"testing"
)

func TestJoinToken(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	secret := strings.Repeat("s", 43)
	good := JoinToken{"tabc234", secret, sum}
	got, err := ParseJoinToken(" " + good.String() + "\n")
	if err != nil || got != good {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{
		"", ".", "..", "t1." + secret, "t1." + secret + "." + sum + ".x", "t1.short." + sum, "t1." + secret + "." +
			strings.ToUpper(sum),
		"t1." + secret + "." + sum[:63], "." + secret + "." + sum, "t 1." + secret + "." + sum, "t1." + secret +
			"\x00." + sum,
		"t1." + strings.Repeat("s", 200) + "." + sum,
	} {
		got, err := ParseJoinToken(text)
		if !errors.Is(err, ErrJoinToken) || got != (JoinToken{}) {
			t.Errorf("ParseJoinToken(%q) = %v, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestJoinTokenKnowsItsAuthority(t *testing.T) {
	a, _ := authority(t, noon)
	b, _ := authority(t, noon)
	sum, err := Fingerprint(a.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	token := JoinToken{"t1", strings.Repeat("s", 43), sum}
	if err := token.CheckCA(a.CertificatePEM()); err != nil {
		t.Error(err)
	}
	if token.CheckCA(b.CertificatePEM()) == nil || token.CheckCA([]byte("nothing")) == nil {
		t.Error("another authority passed")
	}
}

func FuzzParseJoinToken(f *testing.F) {
	sum := strings.Repeat("0a", 32)
	f.Add("t1." + strings.Repeat("s", 43) + "." + sum)
	f.Add("..")
	f.Add(" t1.aaaaaaaaaaaaaaaa." + sum + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseJoinToken(text)
		if err != nil {
			if got != (JoinToken{}) || !errors.Is(err, ErrJoinToken) {
				t.Errorf("error %v with %v", err, got)
			}
			return
		}
		if got.String() != strings.TrimSpace(text) {
			t.Errorf("%q became %q", text, got.String())
		}
		again, err := ParseJoinToken(got.String())
		if err != nil || again != got {
			t.Errorf("read again: %v, %v", again, err)
		}
	})
}

func FuzzReadRequest(f *testing.F) {
	csr, _, err := NewRequest(Subject{"node", "n1"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, hosts, err := ReadRequest(text)
		if err != nil && !errors.Is(err, ErrRequest) {
			t.Errorf("error %v", err)
		}
		if err == nil && (s.valid() != nil || len(hosts) > maxHosts) {
			t.Errorf("taken: %v with %d hosts", s, len(hosts))
		}
	})
}
