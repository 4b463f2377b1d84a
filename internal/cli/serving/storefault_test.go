package serving

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/serve/server"
)

// TestStoreOfTheLastStart checks that `berth dev` reuses the external store of the last start and says so. It replaces
// neither its own store nor the prefix silently.
func TestStoreOfTheLastStart(t *testing.T) {
	t.Parallel()
	start := func(dir string, c engines.Location) (*server.Home, string, error) {
		notices := ""
		s := &server.Home{Config: server.Config{
			DataDir: dir, Store: c, Log: slog.New(slog.DiscardHandler),
			Command: "berth dev", Notices: func(text string) { notices += text },
		}}
		return s, notices, s.ChooseStore()
	}
	there := engines.Location{Scheme: engines.SchemeEtcd, Endpoints: []string{"http://h:2379"}, Prefix: "prod/"}
	dir := t.TempDir()
	s, notices, err := start(dir, there)
	if err != nil || notices != "" {
		t.Fatalf("first: %v, and it notices %q", err, notices)
	}
	if err := s.RememberStore(); err != nil {
		t.Fatal(err)
	}
	s = &server.Home{Config: server.Config{
		DataDir: dir, Log: slog.New(slog.DiscardHandler), Notices: func(text string) {
			notices += text
		},
	}}
	if err := s.ChooseStore(); err != nil || fmt.Sprint(s.Config.Store) != fmt.Sprint(there) {
		t.Errorf("without --store: %v, and the store is %+v", err, s.Config.Store)
	}
	for _, word := range []string{"etcd://h:2379", "as at the last start", "--data-dir"} {
		if !strings.Contains(notices, word) {
			t.Errorf("it notices %q, want %q in it", notices, word)
		}
	}
	var hinted *hinted.Error
	if _, _, err = start(dir, engines.Location{Endpoints: there.Endpoints}); !errors.As(err, &hinted) ||
		!strings.Contains(hinted.Hint, "berth dev --data-dir "+dir+" --store etcd://h:2379 --store-prefix prod/") {
		t.Errorf("another prefix: got %v", err)
	}
	if _, _, err := start(dir, engines.Location{Endpoints: []string{"http://i:2379"}, Prefix: "prod/"}); err != nil {
		t.Errorf("the same store at another address: %v", err)
	}
	// A server made from the directory keeps its store.
	want := datadir.Settings{Name: "s1", API: "https://127.0.0.1:1", Peer: "https://127.0.0.1:2"}
	if err := initServer(session.New(nil, io.Discard, io.Discard), dir, want); err != nil {
		t.Fatal(err)
	}
	if have, err := datadir.ReadSettings(dir); err != nil || !have.External || have.Store == nil ||
		have.Store.Prefix != "prod/" {
		t.Errorf("the server's settings: %+v, %v", have, err)
	}
	// A server with a store of its own refuses another.
	own := t.TempDir()
	if err := os.MkdirAll(filepath.Join(own, datadir.StoreDir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err = start(own, there); !errors.As(err, &hinted) ||
		!strings.Contains(err.Error(), "--store names another") ||
		!strings.Contains(hinted.Hint, "another --data-dir") {
		t.Errorf("with a store of its own: got %v", err)
	}
	// An unreadable file is an error.
	torn := t.TempDir()
	if err := os.WriteFile(filepath.Join(torn, datadir.StoreFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = start(torn, engines.Location{}); !errors.As(err, &hinted) ||
		!strings.Contains(err.Error(), datadir.StoreFile) {
		t.Errorf("with a torn file: got %v", err)
	}
}
