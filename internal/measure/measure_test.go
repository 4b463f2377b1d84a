package measure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers all requests alike.
func serve(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func reader(t *testing.T) *measure.Reader {
	r := measure.New(measure.Config{Egress: egress.Policy{}.WithLoopback()})
	t.Cleanup(r.Close)
	return r
}

// success is the answer of a server to a query.
func success(kind, result string) string {
	return `{"status":"success","data":{"resultType":"` + kind + `","result":` + result + `}}`
}

func TestQuery(t *testing.T) {
	element := `{"metric":{"job":"web"},"value":[1732096800.123,"0.02"]}`
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   float64
		fault  string
	}{
		{"scalar", 200, success("scalar", `[1732096800.123,"42"]`), 42, ""},
		{"vector of one", 200, success("vector", "["+element+"]"), 0.02, ""},
		{"exponent", 200, success("scalar", `[1,"1.5e+06"]`), 1.5e6, ""},
		{
			"with warnings", 200, `{"status":"success","warnings":["w"],"data":{"resultType":"scalar","result":[1,"7"]}}`,
			7, "",
		},
		{"none", 200, success("vector", "[]"), 0, "no data: the query has no answer"},
		{
			"many", 200, success("vector", "["+element+","+element+"]"), 0,
			"the query has 2 answers, want one number: put sum()",
		},
		{"range", 200, success("matrix", "[]"), 0, "the query answers a matrix, want one number"},
		{"text", 200, success("string", `[1,"x"]`), 0, "the query answers a string"},
		{
			"histogram", 200, success("vector", `[{"metric":{},"histogram":[1,{"count":"3"}]}]`), 0,
			"a histogram, want a number",
		},
		{"not a number", 200, success("scalar", `[1,"NaN"]`), 0, "the answer is NaN"},
		{"infinite", 200, success("scalar", `[1,"+Inf"]`), 0, "the answer is infinite"},
		{"no value", 200, success("scalar", `[1,"x"]`), 0, `"x" is not a number`},
		{"half a value", 200, success("scalar", `[1]`), 0, "cannot be read"},
		{"a value as a number", 200, success("scalar", `[1,2]`), 0, "cannot be read"},
		{"scalar that is none", 200, success("scalar", `{}`), 0, "cannot be read"},
		{"vector that is none", 200, success("vector", `{}`), 0, "cannot be read"},
		{
			"wrong query", 400, `{"status":"error","errorType":"bad_data","error":"parse error: unexpected \u0007end"}`,
			0,
			"status 400, bad_data: parse error: unexpected  end",
		},
		{
			"error with 200", 200, `{"status":"error","errorType":"execution","error":"too many samples"}`, 0,
			"execution: too many samples",
		},
		{"gateway", 502, "<html>secret</html>", 0, "status 502 Bad Gateway"},
		{"something else", 200, "<html>", 0, "not one of a Prometheus server"},
		{"other JSON", 200, "{}", 0, "not one of a Prometheus server"},
		{
			"too long", 200, strings.Repeat(" ", measure.MaxBody) + success("scalar", `[1,"42"]`), 0,
			"longer than 1024 KiB",
		},
		{"long words", 400, `{"error":"` + strings.Repeat("x", 5000) + `"}`, 0, "xxx…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := reader(t).Query(t.Context(), serve(t, tt.status, tt.body), "up")
			switch {
			case tt.fault == "" && (err != nil || got != tt.want):
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
				t.Errorf("got %v, %v, want %q", got, err, tt.fault)
			case err != nil && (len(err.Error()) > 500 || strings.Contains(err.Error(), "secret")):
				t.Errorf("the error passes on too much: %v", err)
			}
		})
	}
}

// TestQueryReachesTheServer: the query arrives as it is, below the path and with the parameters of the base.
func TestQueryReachesTheServer(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.Path + " " + r.URL.Query().Get("tenant") + " " + r.URL.Query().Get("query")
		fmt.Fprint(w, success("scalar", `[1,"1"]`))
	}))
	t.Cleanup(s.Close)
	if _, err := reader(t).Query(t.Context(), s.URL+"/prom/?tenant=a", `sum(rate(x{a="b&c"}[1m])) + 1`); err != nil {
		t.Fatal(err)
	}
	if want := `/prom/api/v1/query a sum(rate(x{a="b&c"}[1m])) + 1`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNoServerAnswers(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	_, err := reader(t).Query(t.Context(), url, "a_query_that_is_long")
	if err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "a_query") {
		t.Errorf("got %v", err)
	}
	if _, err := reader(t).Query(t.Context(), "http://[::1", "up"); err == nil ||
		!strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reader(t).Query(ctx, serve(t, 200, ""), "up"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// hangs answers nothing until the request is cancelled.
type hangs struct{}

func (hangs) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestWaitsNoLongerThanItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := measure.New(measure.Config{Client: &http.Client{Transport: hangs{}, Timeout: 3 * time.Second}})
		began := time.Now()
		if _, err := r.Query(t.Context(), "http://prometheus.example", "up"); err == nil ||
			time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestRedirects(t *testing.T) {
	target := serve(t, 200, success("scalar", `[1,"1"]`))
	away := httptest.NewServer(http.RedirectHandler(target, http.StatusFound))
	t.Cleanup(away.Close)
	if _, err := reader(t).Query(t.Context(), away.URL, "up"); err == nil ||
		!strings.Contains(err.Error(), "redirects to another host") {
		t.Errorf("got %v", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/old/", http.RedirectHandler("/new", http.StatusFound))
	mux.HandleFunc("/new", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, success("scalar", `[1,"1"]`)) })
	mux.HandleFunc("/round/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
	})
	same := httptest.NewServer(mux)
	t.Cleanup(same.Close)
	if got, err := reader(t).Query(t.Context(), same.URL+"/old", "up"); err != nil || got != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := reader(t).Query(t.Context(), same.URL+"/round", "up"); err == nil ||
		!strings.Contains(err.Error(), "again and again") {
		t.Errorf("got %v", err)
	}
}

func TestGates(t *testing.T) {
	for _, tt := range []struct {
		name, pass, body string // without a body the gate asks a Prometheus server that answers 0.02
		status           int
		want             bool
		message          string // or the error
	}{
		{"passes", "value < 0.05", "", 0, true, "value = 0.02: value < 0.05 is true"},
		{"does not", "value < 0.01", "", 0, false, "value = 0.02: value < 0.01 is false"},
		{"a whole number", "value < 1 && value > -1", "", 0, true, "value = 0.02: value < 1 && value > -1 is true"},
		{"answer", "", "ok", 200, true, "status = 200: status >= 200 && status < 300 is true"},
		{"bad answer", "", "oh", 503, false, "status = 503: status >= 200 && status < 300 is false"},
		{
			"field that is too high", `json.web.errors < 5 && json.up && json.who == "you"`,
			`{"web": {"errors": 7}, "up": true, "who": "secret"}`, 200, false,
			`status = 200, json.web.errors = 7, json.up = true: json.web.errors < 5 && json.up && json.who == "you" is false`,
		},
		{"body", `body.contains("ready")`, "is ready", 200, true, ""},
		{"JSON", `json.errors == 0 && json.list.all(x, x > 1.5)`, `{"errors": 0, "list": [2, 3]}`, 200, true, ""},
		{"JSON field", `json.ok`, `{"ok": true}`, 200, true, ""},
		{
			"field that is no answer", `json.ok`, `{"ok": 1}`, 200, false,
			"error: status = 200, json.ok = 1: json.ok is neither true nor false",
		},
		{
			"field that is missing", `json.ok`, `{}`, 200, false,
			"error: status = 200: json.ok cannot be computed: no such key: ok",
		},
		{"body that is no JSON", `json.ok`, `secret`, 200, false, "error: status = 200: json.ok cannot be computed: "},
		{"null is distinguished", `json == null`, `secret`, 200, true, ""},
		{
			"costly", `json.all(a, json.all(b, json.all(c, a + b + c > 0)))`, "[" + strings.Repeat("1,", 300) +
				"1]", 200,
			false, "error: status = 200: json.all(a, json.all(b, json.all(c, a + b + c > 0))) cannot be " +
				"computed: operation cancelled: actual cost limit exceeded",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := cluster.Gate{Name: "g", Pass: tt.pass, Query: "up"}
			if tt.body != "" {
				g.HTTP, g.Query = serve(t, tt.status, tt.body), ""
			} else {
				g.Prometheus = serve(t, 200, success("scalar", `[1,"0.02"]`))
			}
			passed, message, err := reader(t).Gate(t.Context(), g)
			if want, ok := strings.CutPrefix(tt.message, "error: "); ok {
				if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, %q, %v, want the error %q", passed, message, err, want)
				}
				return
			}
			if err != nil || passed != tt.want || tt.message != "" && message != tt.message {
				t.Errorf("got %v, %q, %v, want %v, %q", passed, message, err, tt.want, tt.message)
			}
		})
	}
	if _, _, err := reader(t).Gate(t.Context(),
		cluster.Gate{Prometheus: serve(t, 503, ""), Query: "up", Pass: "true"}); err == nil {
		t.Error("a gate passes without an answer")
	}
	if _, _, err := reader(t).Gate(t.Context(),
		cluster.Gate{Prometheus: serve(t, 200, success("scalar", `[1,"1"]`)), Query: "up"}); err == nil {
		t.Error("a gate passes without an expression")
	}
	if _, _, err := reader(t).Gate(t.Context(), cluster.Gate{HTTP: "http://[::1"}); err == nil {
		t.Error("a gate passes without an address")
	}
}

func TestCheckGate(t *testing.T) {
	for _, tt := range []struct {
		gate cluster.Gate
		want string
	}{
		{cluster.Gate{Pass: "value < 0.01"}, ""},
		{cluster.Gate{HTTP: "http://a"}, ""},
		{cluster.Gate{HTTP: "http://a", Pass: `json.a.b && body != "" && status == 200`}, ""},
		{cluster.Gate{}, ""},
		{cluster.Gate{Pass: "value <"}, "column 8: Syntax error"},
		{cluster.Gate{Pass: "vaule < 1"}, "column 1: undeclared reference to 'vaule'"},
		{cluster.Gate{Pass: "status == 200"}, "undeclared reference to 'status'"},
		{cluster.Gate{HTTP: "http://a", Pass: "value < 1"}, "undeclared reference to 'value'"},
		{cluster.Gate{Pass: "value + 1.0"}, "value + 1.0 is a double, want true or false"},
		{cluster.Gate{Pass: "value == 1"}, "numbers like value are written with a point, as 1.0"},
		{cluster.Gate{Pass: `value < "1"`}, "found no matching overload"},
		{cluster.Gate{Pass: strings.Repeat("(", 10_000)}, "column"},
	} {
		err := measure.CheckGate(tt.gate)
		if tt.want == "" && err != nil || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%.40q: %v, want %q", tt.gate.Pass, err, tt.want)
		}
	}
}

// TestManyConcurrentGates queries more gates than are kept, concurrently.
func TestManyConcurrentGates(t *testing.T) {
	r := measure.New(measure.Config{Programs: 3, Egress: egress.Policy{}.WithLoopback()})
	t.Cleanup(r.Close)
	url := serve(t, 200, "ok")
	var wg sync.WaitGroup
	for side := range 4 {
		wg.Go(func() {
			for i := range 20 {
				g := cluster.Gate{HTTP: url, Pass: fmt.Sprintf("status == 200 && %d == %d", (side+i)%7, i%7)}
				passed, _, err := r.Gate(t.Context(), g)
				if want := (side+i)%7 == i%7; err != nil || passed != want {
					t.Errorf("%s: %v, %v", g.Pass, passed, err)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzCheckGate: no expression makes the check panic.
func FuzzCheckGate(f *testing.F) {
	for _, s := range []string{
		"value < 0.01", "json.a.exists(x, x > 1)", "[1,2].map(x, x*x)", "true ? 1 : 2",
		"{'a': 1}.a", "b'\\xff'", "value.value", "((((", "1 == 1.0",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, pass string, http bool) {
		g := cluster.Gate{Name: "g", Pass: pass}
		if http {
			g.HTTP = "http://a"
		}
		if err := measure.CheckGate(g); err != nil && err.Error() == "" {
			t.Error("an error without a message")
		}
	})
}

// TestRefusedAddresses: no gate and no query asks what is the machine's own, however the address is written.
func TestRefusedAddresses(t *testing.T) {
	r := measure.New(measure.Config{})
	defer r.Close()
	inner := serve(t, 200, success("scalar", `[1,"1"]`))
	for _, base := range []string{
		inner, strings.Replace(inner, "127.0.0.1", "localhost", 1), "http://169.254.169.254", "http://[fe80::1]:9090",
		"http://[::ffff:169.254.169.254]", "http://[fd00:ec2::254]", "http://100.100.100.200", "http://168.63.129.16",
	} {
		if _, err := r.Query(t.Context(), base, "up"); !errors.Is(err, egress.ErrRefused) {
			t.Errorf("query at %s: %v, want a refusal", base, err)
		}
		if _, _, err := r.Gate(t.Context(), cluster.Gate{HTTP: base}); !errors.Is(err, egress.ErrRefused) {
			t.Errorf("gate at %s: %v, want a refusal", base, err)
		}
	}
}
