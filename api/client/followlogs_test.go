package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// The stream of a log ends when the node's agent goes away; a follower takes it up, without a line too few or too many.
func TestFollowLogsTakesUpABrokenStream(t *testing.T) {
	began := time.Now()
	line := func(n, second int) api.LogLine {
		return api.LogLine{
			Time: began.Add(time.Duration(second) * time.Second), Container: "app", Stream: "stdout",
			Text: fmt.Sprint(n),
		}
	}
	// Lines 2 and 3 have the same time; each stream but the first repeats what is kept.
	all := []api.LogLine{line(1, 0), line(2, 1), line(3, 1), line(4, 1), line(5, 2), line(6, 3)}
	ends := []int{3, 3, -1, 5, 6} // how many lines there are at each call; -1: the node cannot be reached
	calls := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks/{id}/logs", func(w http.ResponseWriter, r *http.Request) {
		n := ends[min(calls, len(ends)-1)]
		calls++
		if n < 0 {
			http.Error(w, "the node cannot be reached", http.StatusServiceUnavailable)
			return
		}
		if calls > 1 && r.URL.Query().Get("since") == "" {
			t.Errorf("call %d requests the whole log", calls)
		}
		for _, l := range all[:n] {
			_ = json.NewEncoder(w).Encode(l)
		}
	})
	mux.HandleFunc("GET /v1/tasks/{id}", func(w http.ResponseWriter, _ *http.Request) {
		v := api.TaskView{ID: "default.web.1.0", UUID: "u1", State: cluster.StateRunning}
		if calls >= len(ends) {
			v.State = cluster.StateSucceeded
		}
		_ = json.NewEncoder(w).Encode(v)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	c, err := New(Config{Addr: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	breaks := 0
	for l, err := range c.FollowLogs(t.Context(), "default.web.1.0", LogOptions{Tail: -1}, func(error) { breaks++ }) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l.Text)
	}
	if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(got, want) || breaks != 4 {
		t.Errorf("got %v after %d breaks, want %v after 4", got, breaks, want)
	}
}

func TestFollowLogsOfATaskThatIsNot(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	c, err := New(Config{Addr: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range c.FollowLogs(t.Context(), "default.web.1.0", LogOptions{}, nil) {
		n++
		if StatusOf(err) != http.StatusNotFound {
			t.Errorf("got %v, want 404", err)
		}
	}
	if n != 1 {
		t.Errorf("%d elements, want the error", n)
	}
}
