package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun measures a small fleet, and draws it with and without what comes end to end.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run([]string{"-dir", dir, "-nodes", "25,50"}, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 {
		t.Errorf("got %d lines, want one for each fleet:\n%s", lines, out.String())
	}
	without := drawn(t, dir)
	text := strings.Join(endToEnd, ",") + "\n1000,10000,50000,20,90\n10000,100000,45000,25,140\n"
	if err := os.WriteFile(filepath.Join(dir, "growth-latency.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-dir", dir, "-draw"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"durable, end to end", "end to end through the API, 99 of 100"} {
		if with := drawn(t, dir); strings.Contains(without, name) || !strings.Contains(with, name) {
			t.Errorf("the line %q is to be there with the figures alone", name)
		}
	}
}

// drawn returns the picture, which must be well-formed.
func drawn(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "growth.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return string(text)
		} else if err != nil {
			t.Fatalf("the picture: %v", err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "growth.csv"), []byte("nodes,tasks\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-nodes", "0"},
		{"-nodes", "many"},
		{"-dir", dir, "-draw"},
		{"-dir", filepath.Join(dir, "none"), "-draw"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}
