package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// TestProfileFaults checks that all faults of a profile come together, each with its path.
func TestProfileFaults(t *testing.T) {
	t.Parallel()
	good := cluster.Profile{
		Name: "worker", Version: 1,
		Requires: cluster.MachineNeeds{
			Arch: []string{"amd64"}, CPU: 2, Memory: 1 << 30, Kernel: "5.10", Cgroups: 2,
			ClockSkew: cluster.Duration(time.Second),
		},
		Packages: map[string][]string{"all": {"runc"}, "debian": {"containerd", "g++"}},
		Modules:  []string{"overlay", "br_netfilter"},
		Sysctls:  map[string]string{"net.ipv4.ip_forward": "1", "net/ipv4/conf/eth0.1/forwarding": "1"},
		Users:    []cluster.ProfileUser{{Name: "app", UID: 2000, Home: "/srv/app", Groups: []string{"adm"}}},
		Files: []cluster.ProfileFile{{
			Path: "/etc/app.conf", Mode: "0640", Owner: "app:adm", Restart: []string{"app@1"},
		}},
		Agent: cluster.AgentSettings{Executor: "containerd", Flags: []string{"--cores=2-7", "--dns-listen=off"}},
	}
	for name, tt := range map[string]struct {
		change func(p *cluster.Profile)
		want   []string
	}{
		"none":    {func(*cluster.Profile) {}, nil},
		"version": {func(p *cluster.Profile) { p.Version = 0 }, []string{"version"}},
		"needs": {
			func(p *cluster.Profile) {
				p.Requires = cluster.MachineNeeds{
					Arch: []string{"vax"}, CPU: -1, Kernel: "new", Cgroups: 3, ClockSkew: 1,
				}
			},
			[]string{
				"requires.arch[0]", "requires.cpu", "requires.kernel", "requires.cgroups", "requires.clock_skew",
			},
		},
		"options instead of names": {
			func(p *cluster.Profile) {
				p.Packages = map[string][]string{"debian": {"--purge", "a", "a"}}
				p.Modules = []string{"-r"}
				p.Sysctls = map[string]string{"../../etc/passwd": "x", "somaxconn": "1"}
			},
			[]string{
				`packages["debian"][0]`, `packages["debian"][2]`, "modules[0]", `sysctls["../../etc/passwd"]`,
				`sysctls["somaxconn"]`,
			},
		},
		"users and files": {
			func(p *cluster.Profile) {
				p.Users = []cluster.ProfileUser{{Name: "root", UID: -1, Groups: []string{"A"}}}
				p.Files = []cluster.ProfileFile{
					{Path: "etc/a", Mode: "999", Owner: "a:b:c", Restart: []string{"-x"}},
					{Path: "/a/../b"},
					{Path: "/same"},
					{Path: "/same", Content: strings.Repeat("x", cluster.MaxProfileFile+1)},
				}
			},
			[]string{
				"users[0].name", "users[0].uid", "users[0].groups[0]", "files[0].path", "files[0].mode",
				"files[0].owner", "files[0].restart[0]", "files[1].path", "files[3].path", "files",
			},
		},
		"agent": {
			func(p *cluster.Profile) {
				p.Agent = cluster.AgentSettings{
					Executor: "vm", Flags: []string{"--server=x", "cores", "--name", "--label=a=b"},
				}
			},
			[]string{"agent.executor", "agent.flags[0]", "agent.flags[1]", "agent.flags[2]", "agent.flags[3]"},
		},
	} {
		p := good
		tt.change(&p)
		var got []string
		for _, f := range cluster.FaultsOf(p.Validate()) {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", name, diff)
		}
	}
}

func TestPackagesFor(t *testing.T) {
	t.Parallel()
	p := cluster.Profile{Packages: map[string][]string{
		"all": {"runc"}, "debian": {"containerd", "runc"}, "ubuntu": {"linux-tools"}, "alpine": {"containerd-ctr"},
	}}
	if diff := cmp.Diff([]string{"containerd", "linux-tools", "runc"}, p.PackagesFor("ubuntu", "debian")); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestKernelVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]int{
		"6.1.0-32-amd64": {6, 1, 0}, "5.10": {5, 10, 0}, "6.18.44-fc-v782": {6, 18, 44}, "6": {6, 0, 0},
		"6.": {6, 0, 0},
	} {
		if got, ok := cluster.KernelVersion(text); !ok || got != want {
			t.Errorf("%s: got %v (%v), want %v", text, got, ok, want)
		}
	}
	if got, ok := cluster.KernelVersion("new"); ok {
		t.Errorf("a text without numbers is the version %v", got)
	}
}
