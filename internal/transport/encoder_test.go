package transport

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addressAt(task, node string, port int) ServiceAddress {
	return ServiceAddress{
		Task: task, Node: node, Address: "192.0.2.1",
		Ports: map[string]int{"http": port, "admin": port + 1},
	}
}

// A difference turns its base list into the list of its stamp, or returns an error.
func TestServiceSentOnto(t *testing.T) {
	a, b, c, moved := addressAt("t.1", "n1", 1), addressAt("t.2", "n1", 2), addressAt("t.2", "n2", 3),
		addressAt("t.2", "n1", 9)
	base := []ServiceAddress{a, b}
	from := StampOf(false, base)
	for name, test := range map[string]struct {
		gone, come, want []ServiceAddress
		since, stamp     string
		wrong            bool
	}{
		"nothing":        {want: base},
		"one came":       {come: []ServiceAddress{c}, want: []ServiceAddress{a, b, c}},
		"the first went": {gone: []ServiceAddress{a}, want: []ServiceAddress{b}},
		"one changed":    {come: []ServiceAddress{moved}, want: []ServiceAddress{a, moved}},
		"all together": {
			gone: []ServiceAddress{a}, come: []ServiceAddress{moved, c},
			want: []ServiceAddress{moved, c},
		},
		"all went": {gone: base, want: []ServiceAddress{}},
		"from something else": {
			since: StampOf(false, base[1:]), come: []ServiceAddress{c},
			want: []ServiceAddress{a, b, c}, wrong: true,
		},
		"went, was not there": {gone: []ServiceAddress{c}, want: base, wrong: true},
		"to something else":   {come: []ServiceAddress{c}, want: []ServiceAddress{a, c}, wrong: true},
		"a stamp of another form": {
			since: "0011223344556677889900aa", come: []ServiceAddress{c}, want: []ServiceAddress{a, b, c}, wrong: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			update := ServiceUpdate{Stamp: StampOf(false, test.want), Since: from, Addresses: test.come}
			if test.since != "" {
				update.Since = test.since
			}
			for _, g := range test.gone {
				update.Gone = append(update.Gone, g.Place())
			}
			got, err := update.Onto(from, base)
			if errors.Is(err, ErrDifference) != test.wrong {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" && !test.wrong {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]ServiceAddress{a, b}, base); diff != "" {
		t.Errorf("the base was changed:\n%s", diff)
	}
	whole := ServiceUpdate{Stamp: "of whatever build", Addresses: []ServiceAddress{c}}
	if got, err := whole.Onto("x", base); err != nil || len(got) != 1 {
		t.Errorf("a whole list: got %v %v", got, err)
	}
}

// The stamp depends on the whole content and not on its order.
func TestStamps(t *testing.T) {
	a, b := addressAt("t.1", "n1", 1), addressAt("t.2", "n1", 2)
	one := StampOf(false, []ServiceAddress{a, b})
	if two := StampOf(false, []ServiceAddress{b, a}); one != two {
		t.Errorf("in another order: %s and %s", one, two)
	}
	seen := map[string]string{one: "two addresses"}
	for name, other := range map[string]ServiceAddress{
		"task": {"t.3", "n1", b.Address, b.Ports}, "node": {"t.2", "n2", b.Address, b.Ports},
		"address": {"t.2", "n1", "192.0.2.2", b.Ports},
		"port":    {"t.2", "n1", b.Address, map[string]int{"http": 2, "admin": 4}},
		"ports":   {"t.2", "n1", b.Address, nil}, "bounds": {"t.2n", "1", b.Address, b.Ports},
	} {
		s := StampOf(false, []ServiceAddress{a, other})
		if was, ok := seen[s]; ok {
			t.Errorf("another %s has the stamp of %s", name, was)
		}
		seen[s] = name
	}
	if StampOf(true, nil) == StampOf(false, nil) {
		t.Error("a service without addresses has the stamp of one that does not exist")
	}
}

// longListDispatch returns a long list of addresses.
type longListDispatch struct {
	sessionDispatch
	reply AddressesReply
}

func (c longListDispatch) Addresses(context.Context, AddressesRequest) (AddressesReply, error) {
	return c.reply, nil
}

// Answers are compressed for agents that accept it, and unchanged for all others.
func TestAddressesArePacked(t *testing.T) {
	long, short := ServiceUpdate{Cluster: "c", Service: "web", Stamp: "1"},
		ServiceUpdate{Cluster: "c", Service: "db", Stamp: "2", Missing: true}
	for i := range 1000 {
		long.Addresses = append(long.Addresses,
			addressAt(fmt.Sprintf("c.web.1.%d", i), fmt.Sprintf("n%d", i%7), 20000+i))
	}
	long, err := long.Encoded()
	if err != nil {
		t.Fatal(err)
	}
	for name, update := range map[string][]ServiceUpdate{"none": nil, "short": {short}, "both": {long, short}} {
		t.Run(name, func(t *testing.T) {
			want := AddressesReply{Services: update}
			plain, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			h := Handler(longListDispatch{reply: want})
			answer := func(accept string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathAddresses,
					strings.NewReader(`{"node":"n1","session":1}`))
				if accept != "" {
					r.Header.Set("Accept-Encoding", accept)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			if w := answer(""); w.Header().Get("Content-Encoding") != "" ||
				strings.TrimSpace(w.Body.String()) != string(plain) {
				t.Errorf("without compression: %q", w.Body)
			}
			w := answer("gzip")
			if w.Header().Get("Content-Encoding") != "gzip" || len(plain) > 1000 && w.Body.Len() > len(plain)/5 {
				t.Errorf("%d bytes of %d, as %v", w.Body.Len(), len(plain), w.Header())
			}
			unpack, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(unpack); err != nil || strings.TrimSpace(string(text)) != string(plain) {
				t.Errorf("unpacked: %q %v", text, err)
			}
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				f.serve(t, "http://new:7071", longListDispatch{reply: want})
				got, err := f.client(t, "http://new:7071").Addresses(t.Context(),
					AddressesRequest{Node: "n1", Session: 1})
				if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(ServiceUpdate{}),
					cmpopts.EquateEmpty()); err != nil || diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

// slow is an answer that is never read.
type slow struct {
	http.ResponseWriter
	until time.Time
}

func (s *slow) SetWriteDeadline(until time.Time) error {
	s.until = until
	return nil
}

// The server bounds its wait for an agent that does not read its answer.
func TestAddressesBoundTheWait(t *testing.T) {
	w := &slow{ResponseWriter: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathAddresses,
		strings.NewReader(`{"node":"n1","session":1}`))
	Handler(longListDispatch{}).ServeHTTP(w, r)
	if left := time.Until(w.until); left <= 0 || left > writeTimeout {
		t.Errorf("the answer has to be read within %v, want %v", left, writeTimeout)
	}
}
