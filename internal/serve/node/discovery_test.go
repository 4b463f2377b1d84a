package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/testkit"
)

// TestOwnerStays checks that the owner of the registrations stays with the data, and that other data have another one.
func TestOwnerStays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "agent")
	d := Discovery{Endpoint: "http://127.0.0.1:8500"}
	_, first, err := d.open(dir, slog.New(slog.DiscardHandler))
	if err != nil || len(first) != 12 {
		t.Fatalf("got the owner %q and error %v, want 12 digits", first, err)
	}
	if _, again, err := d.open(dir, slog.New(slog.DiscardHandler)); err != nil || again != first {
		t.Errorf("at the next start: got the owner %q and error %v, want %s", again, err, first)
	}
	if _, other, err := d.open(t.TempDir(), slog.New(slog.DiscardHandler)); err != nil || other == first {
		t.Errorf("with other data: got the owner %q and error %v, want another one", other, err)
	}
	if driver, owner, err := (Discovery{}).open(dir, nil); driver != nil || owner != "" || err != nil {
		t.Errorf("without an address: got %v, %q and error %v", driver, owner, err)
	}
}

// TestDiscoveryFaultsNameTheRemedy checks that errors about Consul name the flag to change. Files are read when they
// are used: a missing one keeps no agent from its start.
func TestDiscoveryFaultsNameTheRemedy(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	for name, test := range map[string]struct {
		location   Discovery
		says, hint string
	}{
		"no consul": {
			Discovery{Endpoint: "http://" + testkit.FreeAddress(t)}, "refused", "--discovery names its HTTP",
		},
		"no authority": {
			Discovery{Endpoint: "https://" + testkit.FreeAddress(t), CA: "none.pem"},
			"none.pem",
			"--discovery-ca needs",
		},
		"no token": {
			Discovery{Endpoint: "http://" + testkit.FreeAddress(t), TokenFile: token},
			token,
			"Check --discovery-token-file " + token,
		},
	} {
		driver, _, err := test.location.open(t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: the agent would not start: %v", name, err)
			continue
		}
		_, err = driver.List(t.Context())
		advice, ok := errors.AsType[*hinted.Error](err)
		if !ok || !strings.Contains(err.Error(), test.says) || !strings.Contains(advice.Hint, test.hint) {
			t.Errorf("%s: got error %v (%+v), want %q with the hint %q", name, err, advice, test.says, test.hint)
		}
	}
}

// TestTokenIsReadAgain checks that the token follows its file.
func TestTokenIsReadAgain(t *testing.T) { // not parallel: it sets a variable
	path := filepath.Join(t.TempDir(), "token")
	d := Discovery{TokenFile: path}
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := d.readToken(); got != want || err != nil {
			t.Errorf("got the token %q and error %v, want %q", got, err, want)
		}
	}
	t.Setenv(DiscoveryTokenVariable, "three")
	if got, err := (Discovery{}).readToken(); got != "three" || err != nil {
		t.Errorf("from the environment: got %q and error %v, want three", got, err)
	}
}
