package cluster

import (
	"fmt"
	"strings"
	"time"
)

// MaxSweepNames bounds how many of the removed things a DiskSweep names.
const MaxSweepNames = 10

// DiskSweep is a removal of images and artifacts from a full disk, since the server last received one. It is soft
// state: the control plane turns it into an event.
type DiskSweep struct {
	At     time.Time `json:"at"` // of the newest, by the node's clock: with the node it names the sweep
	Folder string    `json:"folder"`
	// Before and After are how full the disk was, in percent.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Images and Artifacts count the removed items, Freed is their size, and Names are the first of them, at most
	// MaxSweepNames.
	Images    int      `json:"images,omitempty"`
	Artifacts int      `json:"artifacts,omitempty"`
	Freed     Bytes    `json:"freed"`
	Names     []string `json:"names,omitempty"`
}

// Add notes one that was removed. The caller counts it.
func (s *DiskSweep) Add(name string, size Bytes) {
	s.Freed += size
	if len(s.Names) < MaxSweepNames {
		s.Names = append(s.Names, name)
	}
}

// Join adds an earlier sweep of the same disk.
func (s *DiskSweep) Join(earlier *DiskSweep) {
	s.Before, s.Freed = earlier.Before, s.Freed+earlier.Freed
	s.Images, s.Artifacts = s.Images+earlier.Images, s.Artifacts+earlier.Artifacts
	names := append(append([]string{}, earlier.Names...), s.Names...)
	s.Names = names[:min(len(names), MaxSweepNames)]
}

// Message describes the sweep in a sentence for people. Its length is bounded, whatever the agent sent.
func (s *DiskSweep) Message() string {
	const most = 200
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	var what []string
	if s.Images > 0 {
		what = append(what, count(s.Images, "image"))
	}
	if s.Artifacts > 0 {
		what = append(what, count(s.Artifacts, "artifact"))
	}
	names := make([]string, 0, MaxSweepNames)
	for _, n := range s.Names[:min(len(s.Names), MaxSweepNames)] {
		names = append(names, strings.ToValidUTF8(n[:min(len(n), most)], ""))
	}
	more := ""
	if rest := s.Images + s.Artifacts - len(names); rest > 0 {
		more = fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf("the disk of %s was %.1f%% full, now %.1f%%: removed %s, %v unused: %s%s; at %s",
		s.Folder[:min(len(s.Folder), most)],
		s.Before, s.After, strings.Join(what, " and "), s.Freed, strings.Join(names, ", "), more,
		s.At.UTC().Format(time.RFC3339))
}

// DiskFull says that a disk of images or artifacts is full and that nothing more can be removed. It is soft state.
type DiskFull struct {
	Since   time.Time `json:"since"`
	Folder  string    `json:"folder"`
	Percent float64   `json:"percent"`
	Message string    `json:"message"`
}
