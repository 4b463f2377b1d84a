package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
)

// kind is a kind of viewers: what each of them has open.
type kind struct {
	name string
	path func(o options, i int) string
}

func kinds() []kind {
	nodes := func(options, int) string { return "/v1/nodes" }
	services := func(options, int) string { return "/v1/services" }
	ofCluster := func(_ options, i int) string { return fmt.Sprintf("/v1/tasks?cluster=%s", inCluster(i)) }
	ofService := func(o options, i int) string {
		n := i % o.services
		return fmt.Sprintf("/v1/tasks?cluster=%s&service=%s", inCluster(n), serviceName(n))
	}
	tasks := func(options, int) string { return "/v1/tasks" }
	events := func(options, int) string { return "/v1/events?after=now" }
	return []kind{
		{"the nodes", nodes},
		{"the services", services},
		{"the tasks of 20 clusters", ofCluster},
		{"the tasks of 200 services", ofService},
		{"all tasks", tasks},
		{"the events", events},
		{"all of these", func(o options, i int) string {
			return []func(options, int) string{nodes, services, ofCluster, ofService, tasks, events}[i%6](o, i/6)
		}},
	}
}

// paths returns the path of each viewer's stream.
func (k kind) paths(o options) (all []string) {
	if k.path == nil {
		return nil
	}
	for i := range o.viewers {
		all = append(all, k.path(o, i))
	}
	return all
}

// viewers read the events of their streams.
type viewers struct {
	cancel        context.CancelFunc
	http          *http.Client
	ended         sync.WaitGroup
	bytes, events atomic.Int64

	mu   sync.Mutex
	lost error
}

// fault returns why a stream ended, nil while all are open.
func (c *viewers) fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *viewers) close() {
	c.cancel()
	c.ended.Wait()
	c.http.CloseIdleConnections()
}

// open opens the streams, and returns once each has had its first answer.
func (s *server) open(ctx context.Context, o options, k kind) (*viewers, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &viewers{cancel: cancel, http: &http.Client{Transport: &http.Transport{}}}
	paths := k.paths(o)
	first := make(chan error, len(paths))
	for _, path := range paths {
		c.ended.Go(func() {
			counted := false
			err := c.read(ctx, s, path, func() {
				if !counted {
					counted = true
					first <- nil
				}
			})
			if ctx.Err() != nil {
				err = ctx.Err()
			} else if err == nil {
				err = errors.New("the stream ended")
			}
			if !counted {
				first <- err
			}
			if ctx.Err() == nil {
				c.mu.Lock()
				c.lost = errors.Join(c.lost, fmt.Errorf("%s: %w", path, err))
				c.mu.Unlock()
			}
		})
	}
	for range paths {
		if err := <-first; err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// read reads one stream to its end. It calls synced when the whole list has arrived.
func (c *viewers) read(ctx context.Context, s *server, path string, synced func()) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	r.Header.Set("Accept", "text/event-stream")
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	if r.URL.Path == "/v1/events" {
		synced() // it begins with what comes
	}
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		c.bytes.Add(int64(len(line)))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("event: ")) {
			c.events.Add(1)
		}
		if bytes.HasPrefix(line, []byte("event: synced")) {
			synced()
		}
	}
}
