package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
)

// fakeEndpoint is an endpoint whose addresses a test changes.
type fakeEndpoint struct {
	mu      sync.Mutex
	list    []Address
	index   uint64
	err     error
	changed chan struct{} // closed and replaced
}

func newFakeEndpoint(ports ...int) *fakeEndpoint {
	f := &fakeEndpoint{changed: make(chan struct{})}
	f.set(nil, ports...)
	return f
}

// set changes the addresses, or the error of each read.
func (f *fakeEndpoint) set(err error, ports ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.err, f.list = err, nil
	for _, port := range ports {
		f.list = append(f.list, Address{
			"web", api.EndpointAddress{Address: fmt.Sprint("n:", port), Port: port, Health: api.HealthHealthy},
		})
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// read answers once the content is newer than the index, or after the wait.
func (f *fakeEndpoint) read(ctx context.Context, index uint64, wait time.Duration) ([]Address, uint64, error) {
	limit := time.After(wait)
	for {
		f.mu.Lock()
		list, now, err, changed := f.list, f.index, f.err, f.changed
		f.mu.Unlock()
		if err != nil {
			return nil, 0, err
		}
		if now > index {
			return list, now, nil
		}
		select {
		case <-changed:
		case <-limit:
			return list, now, nil
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// publishing is a publisher in a bubble, with a file and a program in memory. The log has what happened, by second.
type publishing struct {
	*publisher
	web, api *fakeEndpoint

	mu     sync.Mutex
	start  time.Time
	log    []string
	text   string
	replay error // of the next replacements
	reload error // of the next reloads
}

func newPublishing(interval time.Duration) *publishing {
	p := &publishing{web: newFakeEndpoint(1, 2), api: newFakeEndpoint(9), start: time.Now()}
	p.publisher = &publisher{
		sources: []source{{"web", p.web.read}, {"api", p.api.read}}, minInterval: interval, path: "FILE",
		render: func(known map[string][]Address) (string, error) {
			var words []string
			for _, name := range []string{"web", "api"} {
				for _, a := range known[name] {
					if a.Port == 13 {
						return "", errors.New("thirteen")
					}
					words = append(words, fmt.Sprint(a.Port))
				}
			}
			return strings.Join(words, " "), nil
		},
		replace: func(text string) (bool, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.replay != nil {
				return false, p.replay
			}
			changed := text != p.text
			p.text = text
			return changed, nil
		},
		report:   func(format string, args ...any) { p.note(fmt.Sprintf(format, args...)) },
		describe: error.Error,
	}
	p.publisher.reload = func(context.Context) error {
		p.mu.Lock()
		text, err := p.text, p.reload
		p.mu.Unlock()
		p.note("reload with " + text)
		return err
	}
	return p
}

// note adds a line to the log.
func (p *publishing) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, fmt.Sprintf("%s %s", time.Since(p.start).Truncate(100*time.Millisecond), text))
}

// fail makes replacements and reloads fail, or work again.
func (p *publishing) fail(replace, reload error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replay, p.reload = replace, reload
}

// want waits until nothing happens at the present moment, and compares the new lines of the log.
func (p *publishing) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	got := p.log
	p.log = nil
	p.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after %s (-want +got):\n%s", time.Since(p.start), diff)
	}
}

// inPublishing runs a publisher in a bubble.
func inPublishing(t *testing.T, interval time.Duration, do func(t *testing.T, p *publishing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPublishing(interval)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.run(ctx) }()
		do(t, p)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v at the end", err)
		}
	})
}

// after lets virtual time pass.
func after(d time.Duration) { time.Sleep(d) } // in-bubble: the clock of the test is virtual

// The file follows the addresses: the first change at once, later ones at the interval, none without a change.
func TestFileFollowsAddresses(t *testing.T) {
	inPublishing(t, 2*time.Second, func(t *testing.T, p *publishing) {
		p.want(t, "0s berth: wrote FILE: web has 2 addresses; api has 1 address", "0s reload with 1 2 9")
		after(time.Minute) // reads without a change
		p.want(t)
		p.web.set(nil, 1)
		p.want(t, "1m0s berth: wrote FILE: web has 1 address; api has 1 address", "1m0s reload with 1 9")
		after(500 * time.Millisecond)
		p.web.set(nil, 1, 3)
		p.want(t)
		after(500 * time.Millisecond)
		p.web.set(nil, 1, 3, 4)
		p.want(t)
		after(time.Second)
		p.want(t, "1m2s berth: wrote FILE: web has 3 addresses; api has 1 address", "1m2s reload with 1 3 4 9")

		// A change that is taken back within the interval reloads nothing.
		p.web.set(nil)
		synctest.Wait()
		p.web.set(nil, 1, 3, 4)
		after(3 * time.Second)
		p.want(t)
	})
}

// While servers do not answer, the file stays, and the publisher says so once. A later change is applied.
func TestFileStaysInAnOutage(t *testing.T) {
	inPublishing(t, time.Second, func(t *testing.T, p *publishing) {
		p.want(t, "0s berth: wrote FILE: web has 2 addresses; api has 1 address", "0s reload with 1 2 9")
		down := errors.New("no server answers")
		after(2 * time.Second)
		p.web.set(down)
		synctest.Wait()
		p.api.set(down)
		p.want(t, "2s berth: web: no server answers; FILE stays as it is, trying again")
		after(10 * time.Minute)
		p.want(t)
		p.web.set(nil, 1, 2)
		p.api.set(nil, 9, 10)
		after(5 * time.Second)
		p.mu.Lock()
		again := len(p.log) == 3 && strings.Contains(strings.Join(p.log, "\n"), "known again") && p.text == "1 2 9 10"
		p.mu.Unlock()
		if !again {
			t.Errorf("got %q, file %q", p.log, p.text)
		}
		p.mu.Lock()
		p.log = nil
		p.mu.Unlock()
		// An endpoint that was deleted is no end either.
		p.api.set(&client.Error{Problem: api.Problem{Status: http.StatusNotFound, Detail: "there is no endpoint api"}})
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.log) != 1 || !strings.Contains(p.log[0], "there is no endpoint api; FILE stays as it is") ||
			p.text != "1 2 9 10" {
			t.Errorf("got %q, file %q", p.log, p.text)
		}
	})
}

// A failed replacement or reload is repeated, with growing pauses. New addresses do not wait for them.
func TestFailedReloadIsRepeated(t *testing.T) {
	inPublishing(t, time.Second, func(t *testing.T, p *publishing) {
		p.want(t, "0s berth: wrote FILE: web has 2 addresses; api has 1 address", "0s reload with 1 2 9")
		after(2 * time.Second)
		p.fail(nil, errors.New("exit status 1"))
		p.web.set(nil, 5)
		const failed = "berth: the command of --exec failed: exit status 1; trying again"
		p.want(t, "2s berth: wrote FILE: web has 1 address; api has 1 address", "2s reload with 5 9", "2s "+failed)
		after(3 * time.Second)
		p.want(t, "3s reload with 5 9", "3s "+failed, "5s reload with 5 9", "5s "+failed)
		after(2 * time.Second)
		p.fail(nil, nil)
		p.web.set(nil, 6)
		p.want(t, "7s berth: wrote FILE: web has 1 address; api has 1 address", "7s reload with 6 9")
		after(time.Hour)
		p.want(t)

		p.fail(errors.New("the disk is full"), nil)
		p.web.set(nil, 7)
		p.want(t, "1h0m7s berth: replace FILE: the disk is full; trying again")
		p.fail(nil, nil)
		after(time.Second)
		p.want(t, "1h0m8s berth: wrote FILE: web has 1 address; api has 1 address", "1h0m8s reload with 7 9")

		// A template that fails keeps the file until the addresses change.
		p.web.set(nil, 13)
		after(10 * time.Second)
		p.want(t, "1h0m9s berth: the template fails with the present addresses: thirteen; FILE stays as it is")
		p.web.set(nil, 14)
		p.want(t, "1h0m18s berth: wrote FILE: web has 1 address; api has 1 address", "1h0m18s reload with 14 9")
	})
}

// The program reads the file once at the start, even if the file is current: an earlier run may have ended between the
// two steps. A file that is not current is replaced.
func TestReloadAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublishing(time.Second)
		p.text = "1 2 9"
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.run(ctx) }()
		p.want(t, "0s reload with 1 2 9")
		after(time.Minute)
		p.want(t)
		cancel()
		<-ended
	})
}

// A refusal of the first read ends the publisher: the name or the token is wrong. An outage at the start does not.
func TestRefusalAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublishing(time.Second)
		p.api.set(&client.Error{Problem: api.Problem{Status: http.StatusForbidden, Detail: "limited to cluster blue"}})
		err := p.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "read the addresses of api: ") ||
			client.StatusOf(err) != http.StatusForbidden {
			t.Errorf("got %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPublishing(time.Second)
		p.web.set(errors.New("no server answers"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.run(ctx) }()
		p.want(t, "0s berth: web: no server answers; FILE stays as it is, trying again")
		after(time.Minute)
		p.web.set(nil, 1)
		after(longestRetry)
		p.mu.Lock()
		if p.text != "1 9" || len(p.log) != 3 {
			t.Errorf("got %q, file %q", p.log, p.text)
		}
		p.mu.Unlock()
		cancel()
		<-ended
	})
}
