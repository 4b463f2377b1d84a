package manifest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReadURL checks that a manifest is downloaded, and that faults and errors name its address without a password.
func TestReadURL(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good.yaml":
			_, _ = w.Write([]byte("kind: Cluster\nname: shop\n"))
		case "/bad.yaml":
			_, _ = w.Write([]byte("kind: Cluster\nname: Shop\n"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	objects, err := Read(strings.NewReader(""), server.URL+"/good.yaml")
	if err != nil || len(objects) != 1 || objects[0].Name() != "shop" {
		t.Errorf("%d objects, %v", len(objects), err)
	}
	_, err = Read(strings.NewReader(""), server.URL+"/bad.yaml")
	if err == nil || !strings.Contains(err.Error(), "/bad.yaml:2:7: name:") {
		t.Errorf("a fault: %v", err)
	}
	withPassword := strings.Replace(server.URL, "http://", "http://ada:sesame@", 1)
	for _, address := range []string{withPassword + "/none.yaml", "http://ada:sesame@127.0.0.1:1/x.yaml"} {
		_, err = Read(strings.NewReader(""), address)
		if err == nil || !strings.Contains(err.Error(), ".yaml") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%v", err)
		}
	}
}
