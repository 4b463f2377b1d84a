package datadir

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSettingsHosts checks that a certificate covers each name of the server once.
func TestSettingsHosts(t *testing.T) {
	for _, test := range []struct {
		settings Settings
		want     []string
	}{
		{
			Settings{API: "https://10.0.0.1:7071", Peer: "https://10.0.0.1:7072"},
			[]string{"10.0.0.1", "localhost", "127.0.0.1"},
		},
		{
			Settings{API: "https://a.example:7071", Peer: "https://10.0.0.1:7072"},
			[]string{"10.0.0.1", "a.example", "localhost", "127.0.0.1"},
		},
		{
			Settings{API: "https://127.0.0.1:7071", Peer: "https://localhost:7072"},
			[]string{"localhost", "127.0.0.1"},
		},
	} {
		if diff := cmp.Diff(test.want, test.settings.Hosts()); diff != "" {
			t.Errorf("hosts of %s, %s (-want +got):\n%s", test.settings.API, test.settings.Peer, diff)
		}
	}
}
