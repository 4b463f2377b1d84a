package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		wire, least, want int
		says              string
	}{
		"the same":                   {wire: WireVersion, least: WireMin, want: WireVersion},
		"an agent without a version": {says: "upgrade the agent"},
		"a newer agent":              {wire: WireVersion + 3, least: WireVersion, want: WireVersion},
		"an agent that is too new":   {wire: WireVersion + 3, least: WireVersion + 1, says: "upgrade the server"},
		"an agent that is too old":   {wire: WireMin - 1, least: WireMin - 1, says: "upgrade the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Registration{Wire: c.wire, WireMin: c.least}
			got, err := r.Speaks()
			if got != c.want || (err != nil) != (c.says != "") {
				t.Fatalf("got %d %v, want %d", got, err, c.want)
			}
			if err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
	if err := (&Welcome{Wire: WireMin - 1}).speaks(); err == nil ||
		!strings.Contains(err.Error(), "upgrade the server") {
		t.Errorf("an agent at a server that is too old: got %v", err)
	}
}

func recorded(t *testing.T, version, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "wire", version, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// same reads a recorded message, writes it again, and compares: no field may be lost or renamed. Then it reads the
// same message of a newer build with more fields, and compares the fields of this build.
func same[T any](t *testing.T, name string, forget func(*T)) {
	t.Helper()
	olds, news := bytes.Split(recorded(t, "4", name), []byte("\n")),
		bytes.Split(recorded(t, "newer", name), []byte("\n"))
	for i, text := range olds {
		if len(text) == 0 {
			continue
		}
		var v, later T
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(out, &got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s as recorded and as it is written now (-recorded +now):\n%s", name, diff)
		}
		if err := json.Unmarshal(news[i], &later); err != nil {
			t.Fatal(err)
		}
		forget(&later)
		if diff := cmp.Diff(v, later); diff != "" {
			t.Errorf("%s of a newer build (-recorded +newer):\n%s", name, diff)
		}
	}
}

func TestRecordedMessages(t *testing.T) {
	same(t, "registration.json", func(r *Registration) {
		if r.Stats == nil || r.Stats.Tasks != 1 {
			t.Errorf("statistics: got %+v", r.Stats)
		}
		r.Stats, r.Wire, r.WireMin = nil, 4, 1
	})
	same(t, "welcome.json", func(w *Welcome) { w.Servers = nil })
	same(t, "assignments-request.json", func(*AssignmentsRequest) {})
	same(t, "stream.ndjson", func(*Message) {})
	same(t, "report.json", func(*Report) {})
	same(t, "report-reply.json", func(r *ReportReply) { r.Servers = nil })
}

// An agent of another build, by its recorded messages, at a server of this one.
func TestOtherAgents(t *testing.T) {
	for _, version := range []string{"4", "newer"} {
		t.Run(version, func(t *testing.T) {
			var received []string
			h := Handler(&script{
				register: func(r Registration) (Welcome, error) {
					received = append(received, r.Node, r.Tasks[0].UUID)
					_, err := r.Speaks()
					return Welcome{Session: 4}, err
				},
				report: func(r Report) (ReportReply, error) {
					received = append(received, r.Node, r.Tasks[0].UUID)
					return ReportReply{}, nil
				},
				assign: func(_ context.Context, r AssignmentsRequest, send func([]Message) error) error {
					received = append(received, r.Node, r.Definitions[0].String())
					return send([]Message{{Synced: true}})
				},
			})
			for _, call := range [][2]string{
				{PathRegister, "registration.json"},
				{PathReport, "report.json"},
				{PathAssignments, "assignments-request.json"},
			} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, call[0],
					bytes.NewReader(recorded(t, version, call[1]))))
				if w.Code != http.StatusOK {
					t.Errorf("%s: got %d %s", call[1], w.Code, w.Body)
				}
			}
			if diff := cmp.Diff([]string{"n1", "u1", "n1", "u2", "n1", "web@1"}, received); diff != "" {
				t.Errorf("the server understood (-want +got):\n%s", diff)
			}
		})
	}
}

// An agent of this build at a server of another, by its recorded answers.
func TestOtherServers(t *testing.T) {
	for _, version := range []string{"4", "newer"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				mux := http.NewServeMux()
				for path, name := range map[string]string{
					PathRegister: "welcome.json", PathReport: "report-reply.json", PathAssignments: "stream.ndjson",
					PathBeat: "report-reply.json",
				} {
					mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
						_, _ = w.Write(recorded(t, version, name))
					})
				}
				f.serveHandler(t, "http://s1:1", mux)
				c := f.client(t, "http://s1:1")
				w, err := c.Register(t.Context(), Registration{Node: "n1"})
				if err != nil || w.Session != 4 {
					t.Errorf("register: got %+v %v", w, err)
				}
				stream, err := c.Assignments(t.Context(), AssignmentsRequest{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = stream.Close() }()
				assigned, opened := "", ""
				for {
					m, err := stream.Next(t.Context())
					if err != nil {
						break
					}
					if m.Assignment != nil {
						assigned = m.Assignment.UUID
					}
					if m.Open != nil {
						opened = m.Open.ID
					}
				}
				if assigned != "u2" || opened != "x" {
					t.Errorf("stream: got the assignment %q and the stream %q", assigned, opened)
				}
				if reply, err := c.Report(t.Context(), Report{Node: "n1"}); err != nil ||
					reply.Refused["u2"].Message == "" {
					t.Errorf("report: got %+v %v", reply, err)
				}
			})
		})
	}
}
