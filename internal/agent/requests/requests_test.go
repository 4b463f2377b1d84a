package requests_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/requests"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

const page = `# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{code="200",method="get"} 1027
http_requests_total{code="500",method="get"} 3 1395066363000
# TYPE took_seconds histogram
took_seconds_bucket{le="0.1"} 7
took_seconds_bucket{le="+Inf"} 9
took_seconds_sum 1.5
took_seconds_count 9
plain 12.5
plain{a="b"} 1
`

func TestCount(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) })
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hits 4\n")) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>\n")) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/metrics", http.StatusFound)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("# a long comment that says nothing at all, again and again\n", 40_000)))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	host, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	r := requests.New()
	for name, test := range map[string]struct {
		meter cluster.RequestCounter
		want  float64
		fails string
	}{
		"the defaults":          {want: 1030},
		"a series without type": {meter: cluster.RequestCounter{Series: "plain"}, want: 13.5},
		"a histogram's count":   {meter: cluster.RequestCounter{Series: "took_seconds_count"}, want: 9},
		"another page":          {meter: cluster.RequestCounter{Path: "other", Series: "hits"}, want: 4},
		"no such series":        {meter: cluster.RequestCounter{Series: "nothing"}, fails: "has no nothing"},
		"no such page":          {meter: cluster.RequestCounter{Path: "/no"}, fails: "404"},
		"no page of metrics":    {meter: cluster.RequestCounter{Path: "/broken"}, fails: "parsing error"},
		"a page elsewhere":      {meter: cluster.RequestCounter{Path: "/moved"}, fails: "302"},
		"a page without end":    {meter: cluster.RequestCounter{Path: "/long"}, fails: "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			var got float64
			var err error
			testkit.Eventually(t, time.Minute, func() error { // a slow machine may not answer within the timeout
				got, err = r.Count(t.Context(), host, port, test.meter)
				if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
					t.Logf("%v; trying again", err)
					return err
				}
				return nil
			})
			switch {
			case test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)):
				t.Errorf("got %v %v, want an error with %q", got, err, test.fails)
			case test.fails == "" && (err != nil || got != test.want):
				t.Errorf("got %v %v, want %v", got, err, test.want)
			}
		})
	}
}
