// Package version identifies the build of Berth.
//
// A release build is stamped by the linker (see the Makefile) with its version, its commit and the date of that commit:
// never with the time of the build, so that the same commit gives the same bytes. A build without a stamp, such as `go
// install` or `go test`, falls back on what the toolchain recorded.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Stamped by -ldflags "-X …"; never assigned by code. An empty string is a build
// without a stamp.
//
//nolint:gochecknoglobals // the linker can only set package variables
var (
	version    string
	commit     string
	commitDate string
)

// unstamped is the version of a build that carries none.
const unstamped = "0.0.0-dev"

// Info says where a binary comes from. Every field may be read by programs:
// Version is a semantic version without a leading v, Commit a full hash or empty,
// CommitDate an RFC 3339 time in UTC or empty, Modified is true where the tree
// differed from the commit.
type Info struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	CommitDate string `json:"commit_date,omitempty"`
	Modified   bool   `json:"modified,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// Current returns the build of the running binary. It does no input or output and
// is safe for concurrent use.
func Current() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = nil
	}
	return merge(Info{Version: version, Commit: commit, CommitDate: commitDate}, build)
}

// String is the version alone, as Current has it.
func String() string { return Current().Version }

// String renders the build on one line, for people:
//
//	berth 0.1.0 (commit 1a2b3c4d5e6f, 2026-11-20) go1.26.8 linux/amd64
func (i Info) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "berth %s", i.Version)
	if i.Commit != "" {
		fmt.Fprintf(&b, " (commit %.12s", i.Commit)
		if date, err := time.Parse(time.RFC3339, i.CommitDate); err == nil {
			fmt.Fprintf(&b, ", %s", date.UTC().Format(time.DateOnly))
		}
		if i.Modified {
			b.WriteString(", modified")
		}
		b.WriteString(")")
	}
	fmt.Fprintf(&b, " %s %s", i.Go, i.Platform)
	return b.String()
}

// merge fills what the stamp leaves open from the toolchain's record. A field of
// the stamp wins; build may be nil.
func merge(stamp Info, build *debug.BuildInfo) Info {
	info := stamp
	info.Go = runtime.Version()
	info.Platform = runtime.GOOS + "/" + runtime.GOARCH
	if build != nil {
		if build.GoVersion != "" {
			info.Go = build.GoVersion
		}
		if info.Version == "" && build.Main.Version != "(devel)" {
			info.Version = build.Main.Version
		}
		if stamp.Commit == "" {
			fromVCS(&info, build.Settings)
		}
	}
	if info.Version == "" {
		info.Version = unstamped
	}
	info.Version = strings.TrimPrefix(info.Version, "v")
	return info
}

// fromVCS takes the commit from the settings that `go build -buildvcs` records.
func fromVCS(info *Info, settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.time":
			info.CommitDate = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
}
