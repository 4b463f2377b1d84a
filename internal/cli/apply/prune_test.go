package apply

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/selector"
)

// TestSelectionAsksForItsLabels checks that the servers select, and that an answer with more than was selected deletes
// nothing.
func TestSelectionAsksForItsLabels(t *testing.T) {
	const text = "app=shop"
	lists := map[string]string{
		"services": `{"name":"web","cluster":"default","labels":{"app":"shop"}},` +
			`{"name":"old","cluster":"default","labels":{"app":"shop"}},` +
			`{"name":"other","cluster":"default","labels":{"app":"bank"}}`,
	}
	seen := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen++
		if got := r.URL.Query().Get("selector"); got != text {
			t.Errorf("%s: selector %q, want %q", r.URL.Path, got, text)
		}
		_, kind, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/clusters/"), "/")
		fmt.Fprintf(w, `{"items":[%s],"index":1}`, lists[kind])
	}))
	defer server.Close()
	c, err := client.New(client.Config{Addr: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := selector.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	written := []manifest.Object{{Kind: cluster.KindService, Value: &cluster.Service{Name: "web"}}}
	s := selection{clusters: []string{"default"}, selector: text, selects: labels.Matches}
	unwritten, n, err := s.find(t.Context(), c, written)
	if err != nil || n != 1 || len(unwritten) != 1 || unwritten[0].Name != "old" {
		t.Errorf("got %v and %d in the manifests (%v), want service/old and 1", unwritten, n, err)
	}
	if seen != 4 {
		t.Errorf("%d lists were requested, want 4", seen)
	}
}
