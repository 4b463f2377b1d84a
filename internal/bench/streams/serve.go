package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/pprof"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/heap"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// adminToken is good on this machine for as long as the measurement takes.
const adminToken = "a-token-of-the-benchmark-0123456789"

// serve runs the measured process. It answers each line of its input with its figures, and ends with the input.
func serve(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	engine := memory.New(memory.Options{})
	defer engine.Close()
	f := newFleet(engine, o)
	if err := f.fill(ctx); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	listener, err := apiserver.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	front := apiserver.New(apiserver.Config{
		Engine: engine, Tables: tables, Trust: apiserver.Trust{Token: adminToken}, Log: log,
	})
	running, stop := context.WithCancel(ctx)
	defer stop()
	parts, running := errgroup.WithContext(running)
	parts.Go(func() error { return tables.Run(running) })
	parts.Go(func() error { return front.Serve(running, listener) })
	parts.Go(func() error { return heap.Tend(running) })
	parts.Go(func() error { return f.change(running) })
	<-tables.Synced()
	token, err := viewerToken(ctx, listener.URL())
	if err == nil {
		err = json.NewEncoder(out).Encode(greeting{URL: listener.URL(), Token: token})
	}
	if err == nil && o.profile != "" {
		profile, perr := os.Create(o.profile)
		if perr != nil {
			return perr
		}
		defer profile.Close()
		if err = pprof.StartCPUProfile(profile); err == nil {
			defer pprof.StopCPUProfile()
		}
	}
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		err = json.NewEncoder(out).Encode(figures{
			CPU: cpu(), Updates: int(f.updates.Load()), Revision: tables.Snapshot().Revision(), Resident: resident(),
		})
	}
	stop()
	if perr := parts.Wait(); !errors.Is(perr, context.Canceled) {
		err = errors.Join(err, perr)
	}
	return err
}

// viewerToken creates a token with the role viewer.
func viewerToken(ctx context.Context, url string) (string, error) {
	body, err := json.Marshal(api.TokenRequest{Name: "viewers", Role: "viewer"})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/tokens", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var reply api.TokenReply
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return "", err
	}
	if reply.Token == "" {
		return "", fmt.Errorf("the server made no token: status %s", resp.Status)
	}
	return reply.Token, nil
}

// cpu returns the CPU seconds that this process has used.
func cpu() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// resident returns the resident memory of this process in bytes.
func resident() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int
	_, _ = fmt.Sscan(string(b), &size, &pages) // 0 where it is no number
	return pages * os.Getpagesize()
}
