package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/transport"
)

// differing makes an addressServer send differences from any list that it ever sent, like a server, and counts its
// answers.
type differing struct {
	sent                map[string][]transport.ServiceAddress // by stamp
	wholes, differences int
	wrong               bool // the next difference leads to a content other than its stamp says
	lose                bool // the next answer gets lost
}

// answer returns the answer about a service to a request. The address server's mutex is held.
func (d *differing) answer(now transport.ServiceUpdate, s transport.ServiceRequest,
	allowed bool,
) transport.ServiceUpdate {
	d.sent[now.Stamp] = now.Addresses
	stamp := s.Stamp
	if stamp == "" {
		stamp = s.Known
	}
	base, ok := d.sent[stamp]
	if !ok || !allowed {
		d.wholes++
		return now
	}
	d.differences++
	list := now.Addresses
	now.Since, now.Addresses = stamp, nil
	for _, a := range list {
		at := slices.IndexFunc(base, func(b transport.ServiceAddress) bool { return b.Place() == a.Place() })
		if at < 0 || !base[at].Equal(&a) {
			now.Addresses = append(now.Addresses, a)
		}
	}
	for _, b := range base {
		if !slices.ContainsFunc(list, func(a transport.ServiceAddress) bool { return b.Place() == a.Place() }) {
			now.Gone = append(now.Gone, b.Place())
		}
	}
	if d.wrong && len(now.Addresses) > 0 {
		d.wrong = false
		now.Addresses = now.Addresses[1:]
	}
	return now
}

// put sets the tasks of a service of the cluster default, with the stamp of a real server.
func (g *addressServer) put(service string, list ...transport.ServiceAddress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortFunc(list, func(a, b transport.ServiceAddress) int { return a.Place().Compare(b.Place()) })
	g.services[addresses.ServiceName{Cluster: "default", Service: service}] = transport.ServiceUpdate{
		Cluster: "default", Service: service, Stamp: transport.StampOf(false, list), Addresses: list,
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

func addressesOf(numbers ...int) (list []transport.ServiceAddress) {
	for _, n := range numbers {
		list = append(list, transport.ServiceAddress{
			Task: fmt.Sprintf("default.web.1.%d", n%100), Node: "n1", Address: "192.0.2.1",
			Ports: map[string]int{"http": 20000 + n},
		})
	}
	return list
}

// withDifferences runs a test in a bubble with an agent at a server that sends differences.
func withDifferences(t *testing.T, test func(w *world, g *addressServer, d *differing)) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.differing = &differing{sent: map[string][]transport.ServiceAddress{}}
		test(w, g, g.differing)
	})
}

func (w *world) wantAddresses(f *addresses.Following, want ...int) {
	w.t.Helper()
	got := f.Now(webName)
	if diff := cmp.Diff(addressesOf(want...), got.Addresses, cmpopts.EquateEmpty()); diff != "" || !got.Known ||
		got.Stale {
		w.t.Errorf("known %v, old %v (-want +got):\n%s", got.Known, got.Stale, diff)
	}
}

// The difference alone updates the list. After a restart the agent gets the changes since the content of its file.
func TestDirectoryTakesDifferences(t *testing.T) {
	withDifferences(t, func(w *world, g *addressServer, d *differing) {
		g.put("web", addressesOf(1, 2, 3)...)
		f := w.agent.services.Follow(webName)
		w.pass(2 * time.Second)
		w.wantAddresses(f, 1, 2, 3)
		g.put("web", addressesOf(0, 102, 3, 4)...)
		w.pass(2 * time.Second)
		w.wantAddresses(f, 0, 102, 3, 4)
		if d.wholes != 1 || d.differences != 1 {
			t.Errorf("%d whole lists and %d differences were sent, want 1 and 1", d.wholes, d.differences)
		}
		w.restart()
		g.put("web", addressesOf(102, 3)...)
		f = w.agent.services.Follow(webName)
		w.pass(2 * time.Second)
		w.wantAddresses(f, 102, 3)
		w.restart()
		f = w.agent.services.Follow(webName)
		defer f.Stop()
		w.pass(2 * time.Second)
		w.wantAddresses(f, 102, 3) // nothing changed, and the list is not stale any more
		if d.wholes != 1 || d.differences != 3 {
			t.Errorf("%d whole lists and %d differences were sent, want 1 and 3", d.wholes, d.differences)
		}
	})
}

// A difference that does not fit changes nothing. The agent then requests whole lists until the session ends.
func TestDirectoryRefusesDifferencesThatDoNotFit(t *testing.T) {
	withDifferences(t, func(w *world, g *addressServer, d *differing) {
		g.put("web", addressesOf(1, 2, 3)...)
		f := w.agent.services.Follow(webName)
		defer f.Stop()
		w.pass(2 * time.Second)
		seen := f.Changed()
		d.wrong = true
		g.put("web", addressesOf(1, 2, 3, 4)...)
		w.pass(2 * time.Second)
		if !closed(seen) {
			t.Error("no change from the whole list")
		}
		w.wantAddresses(f, 1, 2, 3, 4)
		g.put("web", addressesOf(4)...)
		w.pass(2 * time.Second)
		w.wantAddresses(f, 4)
		if d.wholes != 3 || d.differences != 1 || g.requests() > 6 {
			t.Errorf("%d whole lists, %d differences, %d requests; want 3 and 1 and few", d.wholes, d.differences,
				g.requests())
		}
		g.fail(&transport.SessionError{Newest: 1, Detail: "over"})
		w.pass(200 * time.Millisecond)
		g.fail(nil)
		g.put("web", addressesOf(4, 5)...)
		w.pass(time.Minute)
		w.wantAddresses(f, 4, 5)
		if d.differences != 2 {
			t.Errorf("%d differences, want one more in the next session", d.differences)
		}
	})
}

// A file whose content does not match its stamp is no base for differences.
func TestDirectoryDoubtsADamagedFile(t *testing.T) {
	withDifferences(t, func(w *world, g *addressServer, d *differing) {
		g.put("web", addressesOf(1, 2, 3)...)
		w.agent.services.Follow(webName)
		w.pass(2 * time.Second)
		w.stop()
		name := filepath.Join(w.dir, addressFile)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		damaged := strings.Replace(string(text), "20002", "20099", 1)
		if err := os.WriteFile(name, []byte(damaged), 0o600); err != nil || damaged == string(text) {
			t.Fatal(err)
		}
		g.fail(errDown)
		w.start()
		f := w.agent.services.Follow(webName)
		defer f.Stop()
		w.pass(time.Second)
		if got := f.Now(webName); !got.Stale || len(got.Addresses) != 3 {
			t.Errorf("without a server: got %+v", got)
		}
		g.fail(nil)
		w.pass(time.Minute)
		w.wantAddresses(f, 1, 2, 3)
		if d.wholes != 2 || d.differences != 0 {
			t.Errorf("%d whole lists, %d differences; want 2 and none", d.wholes, d.differences)
		}
	})
}

// After lost and wrong answers and restarts of both sides, the agent finally knows what the server knows.
func TestDirectoryConverges(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withDifferences(t, func(w *world, g *addressServer, d *differing) {
				r := rand.New(rand.NewPCG(seed, 2))
				f := w.agent.services.Follow(webName)
				var now []int
				for range 100 {
					switch r.IntN(14) {
					case 0:
						w.restart()
						f = w.agent.services.Follow(webName)
					case 1:
						f.Stop()
						w.pass(time.Duration(r.IntN(3)) * time.Second)
						f = w.agent.services.Follow(webName)
					case 2:
						g.mu.Lock()
						d.wrong = true
						g.mu.Unlock()
					case 3, 4:
						g.mu.Lock()
						d.lose = true
						g.mu.Unlock()
					case 5:
						g.fail(&transport.SessionError{Newest: 1, Detail: "over"})
						w.pass(200 * time.Millisecond)
						g.fail(nil)
					case 6:
						g.mu.Lock()
						clear(d.sent) // a server without earlier lists
						g.mu.Unlock()
					default:
						n := r.IntN(300)
						now = slices.DeleteFunc(now, func(m int) bool { return m%100 == n%100 })
						if r.IntN(3) > 0 {
							now = append(now, n)
						}
						g.put("web", addressesOf(now...)...)
					}
					w.pass(time.Duration(r.IntN(400)) * time.Millisecond)
				}
				w.pass(5 * time.Minute)
				want := addressesOf(now...)
				slices.SortFunc(want, func(a, b transport.ServiceAddress) int { return a.Place().Compare(b.Place()) })
				if diff := cmp.Diff(want, f.Now(webName).Addresses, cmpopts.EquateEmpty()); diff != "" ||
					d.differences < 5 {
					t.Errorf("after %d differences (-server +agent):\n%s", d.differences, diff)
				}
				f.Stop()
			})
		})
	}
}

var errLost = errors.New("the answer was lost")
