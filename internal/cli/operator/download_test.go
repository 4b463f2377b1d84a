package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
)

// snapshotServer serves the text of a snapshot. The first answers are cut short, as many as cut says.
func snapshotServer(t *testing.T, text string, cut int64) (c *client.Client, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	sum := sha256.Sum256([]byte(text))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.SnapshotRevision, "17")
		w.Header().Set("Trailer", api.SnapshotSum)
		if requests.Add(1) <= cut {
			_, _ = io.WriteString(w, text+"and more, then the connection breaks")
			return // without the sum
		}
		_, _ = io.WriteString(w, text)
		w.Header().Set(api.SnapshotSum, hex.EncodeToString(sum[:]))
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{Addr: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, requests
}

func TestSnapshotThatWasCutShortIsDownloadedAgain(t *testing.T) {
	const text = "the snapshot\n"
	for cut, want := range map[int64]error{
		0: nil, downloadAttempts - 1: nil, downloadAttempts: client.ErrCutShort,
	} {
		c, requests := snapshotServer(t, text, cut)
		path := filepath.Join(t.TempDir(), "snapshot")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = download(t.Context(), c, f)
		f.Close()
		if !errors.Is(err, want) || requests.Load() != min(cut+1, downloadAttempts) {
			t.Errorf("%d answers cut short: %v after %d requests, want %v", cut, err, requests.Load(), want)
		}
		got, err := os.ReadFile(path)
		if err != nil || want == nil && string(got) != text {
			t.Errorf("%d answers cut short: the file holds %q, %v", cut, got, err)
		}
	}
}

// A file that cannot be written is no fault of the connection: the snapshot is not requested again.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	c, requests := snapshotServer(t, "the snapshot\n", 0)
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = download(t.Context(), c, f)
	if _, ok := errors.AsType[*fs.PathError](err); !ok || requests.Load() != 1 {
		t.Errorf("%v after %d requests, want the file's error after one", err, requests.Load())
	}
}
