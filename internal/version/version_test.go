package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerge(t *testing.T) {
	const platform = runtime.GOOS + "/" + runtime.GOARCH
	vcs := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "feed"},
		{Key: "vcs.time", Value: "2026-11-20T10:00:00Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	tests := []struct {
		name  string
		stamp Info
		build *debug.BuildInfo
		want  Info
	}{
		{
			name: "no stamp and no record",
			want: Info{Version: unstamped, Go: runtime.Version(), Platform: platform},
		},
		{
			name:  "the stamp wins over the toolchain",
			stamp: Info{Version: "1.2.3", Commit: "abc", CommitDate: "2026-01-02T03:04:05Z"},
			build: &debug.BuildInfo{GoVersion: "go1.99", Main: debug.Module{Version: "v9.9.9"}, Settings: vcs},
			want: Info{
				Version: "1.2.3", Commit: "abc", CommitDate: "2026-01-02T03:04:05Z",
				Go: "go1.99", Platform: platform,
			},
		},
		{
			name:  "go install of a release",
			build: &debug.BuildInfo{GoVersion: "go1.99", Main: debug.Module{Version: "v0.4.0"}},
			want:  Info{Version: "0.4.0", Go: "go1.99", Platform: platform},
		},
		{
			name:  "go build in a changed tree",
			build: &debug.BuildInfo{GoVersion: "go1.99", Main: debug.Module{Version: "(devel)"}, Settings: vcs},
			want: Info{
				Version: unstamped, Commit: "feed", CommitDate: "2026-11-20T10:00:00Z", Modified: true,
				Go: "go1.99", Platform: platform,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, merge(tt.stamp, tt.build)); diff != "" {
				t.Errorf("merge (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInfoString(t *testing.T) {
	tests := []struct {
		name string
		info Info
		want string
	}{
		{
			name: "release",
			info: Info{
				Version: "0.1.0", Commit: "1a2b3c4d5e6f7a8b", CommitDate: "2026-11-20T23:30:00-05:00",
				Go: "go1.26.8", Platform: "linux/amd64",
			},
			want: "berth 0.1.0 (commit 1a2b3c4d5e6f, 2026-11-21) go1.26.8 linux/amd64",
		},
		{
			name: "changed tree without a date",
			info: Info{Version: unstamped, Commit: "1a2b", Modified: true, Go: "go1.26.8", Platform: "linux/amd64"},
			want: "berth 0.0.0-dev (commit 1a2b, modified) go1.26.8 linux/amd64",
		},
		{
			name: "nothing known",
			info: Info{Version: unstamped, Go: "go1.26.8", Platform: "linux/amd64"},
			want: "berth 0.0.0-dev go1.26.8 linux/amd64",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.info.String(); got != tt.want {
				t.Errorf("String() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCurrentIsNeverEmpty(t *testing.T) {
	got := Current()
	if got.Version == "" || got.Go == "" || got.Platform == "" {
		t.Errorf("Current() = %+v, want version, go and platform", got)
	}
	if strings.HasPrefix(String(), "v") {
		t.Errorf("String() = %q, want no leading v", String())
	}
}
