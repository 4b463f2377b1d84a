package setup

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
)

// routeTimeout bounds the time to connect to a server.
const routeTimeout = 3 * time.Second

// Report is what a machine says about itself.
type Report struct {
	// Time is the machine's clock when the report began.
	Time  time.Time     `json:"time"`
	Facts cluster.Facts `json:"facts"`
	// Problems are facts that could not be determined.
	Problems []string `json:"problems,omitempty"`
	// Routes has an entry for each server that the caller named.
	Routes []cluster.Route `json:"routes,omitempty"`
	// Differences are those from the request.
	Differences []Difference `json:"differences,omitempty"`
	// Binary is the checksum of the installed binary; empty without one. It is shortened.
	Binary string `json:"binary,omitempty"`
	// Standalone says that the machine has a server of its own.
	Standalone bool `json:"standalone,omitempty"`
	// Unconfirmed says that an upgrade of the agent waits for its confirmation.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Joined says that the agent has a certificate.
	Joined bool `json:"joined,omitempty"`
}

// Describe reports the facts of the machine, its routes to servers, and what differs from a request, unless it is nil.
func (m *Machine) Describe(ctx context.Context, servers []string, r *Request) (Report, error) {
	report := Report{
		Time: time.Now(), Binary: m.installedSum(), Joined: m.has(certificateFile), Standalone: m.has(serverDir),
		Unconfirmed: NewUpgrades(m).isWaiting(),
	}
	folder := DataDir
	if !m.has(folder) {
		folder = "/var/lib"
	}
	var err error
	if report.Facts, err = facts.Gather(m.path(folder)); err != nil {
		report.Problems = strings.Split(err.Error(), "\n")
	}
	for _, s := range servers {
		report.Routes = append(report.Routes, tryRoute(ctx, s))
	}
	if r == nil {
		return report, nil
	}
	report.Differences, err = m.Compare(ctx, r)
	return report, err
}

// tryRoute connects to a server and closes the connection.
func tryRoute(ctx context.Context, server string) (r cluster.Route) {
	r.Server = server
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		r.Problem = "is no address"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	begun := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	defer func() { _ = conn.Close() }()
	r.Took = cluster.Duration(time.Since(begun).Round(10 * time.Microsecond))
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		r.Address = a.IP.String()
	}
	return r
}

// Unmet returns what a machine lacks of a profile's requirements, a sentence each. Skew is the difference of its clock,
// and within is the error of that measurement.
func Unmet(n *cluster.MachineNeeds, f *cluster.Facts, skew, within time.Duration) (all []string) {
	lacks := func(holds bool, format string, arguments ...any) {
		if !holds {
			all = append(all, fmt.Sprintf(format, arguments...))
		}
	}
	h := f.Hardware
	if h == nil {
		h = &cluster.Hardware{}
	}
	lacks(len(n.Arch) == 0 || slices.Contains(n.Arch, f.Arch), "the architecture is %s, want %s", f.Arch,
		strings.Join(n.Arch, " or "))
	lacks(h.Threads >= n.CPU, "the machine has %d CPUs, want %d", h.Threads, n.CPU)
	lacks(f.Memory >= n.Memory, "the machine has %s of memory, want %s", f.Memory, n.Memory)
	lacks(f.Disk >= n.Disk, "the disk of the agent's data has %s, want %s", f.Disk, n.Disk)
	if n.Kernel != "" {
		is, _ := cluster.KernelVersion(f.Kernel)
		want, _ := cluster.KernelVersion(n.Kernel)
		lacks(slices.Compare(is[:], want[:]) >= 0, "the kernel is %s, want %s", f.Kernel, n.Kernel)
	}
	lacks(h.Cgroups >= n.Cgroups, "the control groups have version %d, want %d", h.Cgroups, n.Cgroups)
	fastest := 0
	for _, i := range h.Interfaces {
		fastest = max(fastest, i.Speed)
	}
	lacks(fastest >= n.LinkSpeed, "the fastest network interface has %d Mbit/s, want %d", fastest, n.LinkSpeed)
	lacks(len(h.GPUs) >= n.GPUs, "the machine has %d GPUs, want %d", len(h.GPUs), n.GPUs)
	limit := time.Duration(n.ClockSkew)
	if limit == 0 {
		limit = time.Duration(cluster.DefaultClockSkew)
	}
	lacks(max(skew, -skew)-within <= limit, "the clock is off by %s, at most %s is accepted: start a time service, "+
		"such as chrony or systemd-timesyncd", skew.Round(time.Millisecond), limit)
	return all
}
