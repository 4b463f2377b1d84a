package main

import (
	"fmt"
	"os"
	"strings"
)

// process is one of this machine, by its id.
type process int

// cpu returns the CPU seconds that the process has used.
func (p process) cpu() float64 {
	var user, system uint64
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) > 12 {
		_, _ = fmt.Sscan(f[11], &user) // 0 where it is no number
		_, _ = fmt.Sscan(f[12], &system)
	}
	return float64(user+system) / 100
}

// rss returns the process's resident memory in bytes.
func (p process) rss() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p))
	if err != nil {
		return 0
	}
	var size, resident int
	_, _ = fmt.Sscan(string(b), &size, &resident) // 0 where it is no number
	return resident * os.Getpagesize()
}

// anonymous returns the part of the resident memory that is no page of a file, in bytes.
func (p process) anonymous() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return 0
	}
	var kb int
	_, after, _ := strings.Cut(string(b), "RssAnon:")
	_, _ = fmt.Sscan(after, &kb) // 0 where it is no number
	return kb << 10
}
