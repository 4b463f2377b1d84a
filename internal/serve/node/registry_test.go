package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRegistries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logins.json")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"auths": {
		"https://one.example/v1/": {"auth": "dXNlcjpzZTpjcmV0"},
		"127.0.0.1:5000": {"username": "u", "password": "p"}
	}, "credsStore": "none"}`, 0o600)
	logins, err := readRegistries(path)
	if err != nil {
		t.Fatal(err)
	}
	for registry, want := range map[string][2]string{
		"one.example": {"user", "se:cret"}, "127.0.0.1:5000": {"u", "p"}, "other.example": {"", ""},
	} {
		if user, secret := logins(registry); user != want[0] || secret != want[1] {
			t.Errorf("%s: got %q %q, want %q", registry, user, secret, want)
		}
	}
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"open to others": {`{"auths": {}}`, 0o644, "chmod 600"},
		"no JSON":        {`{"auths": {"r": {"auth": "c2VjcmV0`, 0o600, "not JSON of the form"},
		"no auths":       {`{}`, 0o600, "not JSON of the form"},
		"no base64":      {`{"auths": {"r": {"auth": "secret!"}}}`, 0o600, `the auth of "r"`},
		"no colon":       {`{"auths": {"r": {"auth": "c2VjcmV0"}}}`, 0o600, `the auth of "r"`},
	} {
		write(test.text, test.mode)
		_, err := readRegistries(path)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "c2Vj") ||
			strings.Contains(err.Error(), "secret!") {
			t.Errorf("%s: got %v, want %q and no secret", name, err, test.want)
		}
	}
}

func FuzzRegistries(f *testing.F) {
	f.Add([]byte(`{"auths": {"one.example": {"auth": "dXNlcjpzZTpjcmV0"}}}`))
	f.Add([]byte(`{"auths": {"": {}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		logins, err := parseRegistries(b)
		if (err == nil) != (logins != nil) {
			t.Errorf("%q: got %v and %v", b, logins, err)
		}
	})
}
