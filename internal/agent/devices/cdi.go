package devices

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/berthd/berth/internal/cluster"
)

// DefaultCDIDirs returns the standard folders of the Container Device Interface; later folders take precedence over
// earlier ones.
func DefaultCDIDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// specs is the content of the machine's CDI specifications.
type specs struct {
	names []string            // qualified, ordered
	files map[string][]string // by name: the device files that a container gets
	err   error
}

// cdi reads the machine's specifications. It reports the faults of a specification and uses the others.
func (f *Finder) cdi() *specs {
	s := &specs{files: map[string][]string{}}
	dirs := f.CDIDirs
	if len(dirs) == 0 {
		for _, dir := range DefaultCDIDirs() {
			dirs = append(dirs, f.path(dir))
		}
	}
	if !slices.ContainsFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err == nil }) {
		return s
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		s.err = err
		return s
	}
	for _, name := range cache.ListDevices() {
		s.names = append(s.names, name)
		d := cache.GetDevice(name)
		for _, n := range d.ContainerEdits.DeviceNodes {
			host := n.HostPath
			if host == "" {
				host = n.Path
			}
			s.files[name] = append(s.files[name], host)
		}
	}
	all := cache.GetErrors()
	var errs []error
	for _, path := range sortedKeys(all) {
		errs = append(errs, fmt.Errorf("%s: %w", path, errors.Join(all[path]...)))
	}
	s.err = errors.Join(errs...)
	return s
}

func (s *specs) has(name string) bool { return slices.Contains(s.names, name) }

// of returns the device that provides the file, or "".
func (s *specs) of(file string) string {
	for _, name := range s.names {
		if !strings.HasSuffix(name, "=all") && slices.Contains(s.files[name], file) {
			return name
		}
	}
	return ""
}

// rest returns the devices of the specifications that were not found otherwise; their type is the class of their kind.
// Several names for the same files are one device, and a name for all devices of a kind is none. Parts of NVIDIA GPUs
// are left out if there are whole GPUs: if GPUs were found, only they count.
func (s *specs) rest(found []Device) (all []Device) {
	taken := map[string]bool{}
	nvidia := false
	for i := range found {
		nvidia = nvidia || found[i].NVIDIA
		taken[strings.Join(s.files[found[i].CDI], "\n")] = true
	}
	for _, name := range s.names {
		kind, device, _ := strings.Cut(name, "=")
		_, class, _ := strings.Cut(kind, "/")
		files := strings.Join(s.files[name], "\n")
		ours := strings.HasPrefix(name, nvidiaCDI)
		if device == "all" || files != "" && taken[files] || ours && nvidia || !cluster.ValidName(class) ||
			class == cluster.CoreType || len(name) > cluster.MaxLabel {
			continue
		}
		taken[files] = true
		d := Device{Device: cluster.Device{ID: name, Type: class, Numa: -1}, CDI: name, NVIDIA: ours}
		if ours {
			d.NVIDIAName = device
		}
		all = append(all, d)
	}
	return all
}
