package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
)

// Files that keep the settings of a profile over a boot.
const (
	modulesFile = "/etc/modules-load.d/berth-profile.conf"
	sysctlFile  = "/etc/sysctl.d/90-berth-profile.conf"
)

// words of differences.
const (
	isMissing = "missing"
	isThere   = "installed"
)

// packages are the packages of a profile. They are installed by apt, together.
type packages struct{ profile *cluster.Profile }

func (p packages) wanted(m *Machine) []string {
	return p.profile.PackagesFor(facts.Distributions(m.Root)...)
}

func (p packages) compare(ctx context.Context, m *Machine) (all []Difference, err error) {
	wanted := p.wanted(m)
	if len(wanted) == 0 {
		return nil, nil
	}
	if !m.hasProgram("dpkg-query") || !m.hasProgram("apt-get") {
		return nil, fmt.Errorf("the profile needs packages, and only apt can install them: this machine is %s. "+
			"Install %s otherwise and move them to the distribution that needs them",
			cmp.Or(strings.Join(facts.Distributions(m.Root), " "), "of an unknown distribution"),
			strings.Join(wanted, ", "))
	}
	// it fails if some packages are unknown, and lists the others nevertheless
	out, _ := m.Run(ctx, "dpkg-query", append([]string{
		"--show", "--showformat", `${Package} ${db:Status-Status}\n`, "--",
	}, wanted...)...)
	installed := map[string]bool{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == "installed" {
			installed[f[0]] = true
		}
	}
	for _, name := range wanted {
		if !installed[name] {
			all = append(all, Difference{"package " + name, isMissing, isThere})
		}
	}
	return all, nil
}

func (p packages) apply(ctx context.Context, m *Machine) error {
	if _, err := m.Run(ctx, "apt-get", "update", "--quiet"); err != nil {
		return err
	}
	_, err := m.Run(ctx, "apt-get", append([]string{
		"install", "--yes", "--quiet", "--no-install-recommends", "--option", "DPkg::Lock::Timeout=300",
		"--option", "Dpkg::Options::=--force-confold", "--",
	}, p.wanted(m)...)...)
	return err
}

// modules are the modules of the kernel.
type modules struct{ profile *cluster.Profile }

func (i *modules) content() string {
	if len(i.profile.Modules) == 0 {
		return ""
	}
	return "# Written by Berth for the profile " + i.profile.Name + ".\n" +
		strings.Join(i.profile.Modules, "\n") + "\n"
}

// loaded reports whether the kernel has a module, or was built with it.
func (m *Machine) loaded(module string) bool {
	module = strings.ReplaceAll(module, "-", "_")
	if m.has("/sys/module/" + module) {
		return true
	}
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	builtin, err := os.ReadFile(m.path("/lib/modules/" + unix.ByteSliceToString(name.Release[:]) + "/modules.builtin"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(builtin)) {
		base := strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)), ".ko")
		if strings.ReplaceAll(base, "-", "_") == module {
			return true
		}
	}
	return false
}

func (i *modules) compare(_ context.Context, m *Machine) (all []Difference, err error) {
	for _, module := range i.profile.Modules {
		if !m.loaded(module) {
			all = append(all, Difference{"module " + module, isMissing, "loaded"})
		}
	}
	kept, err := m.compareKept(modulesFile, i.content())
	return append(all, kept...), err
}

func (i *modules) apply(ctx context.Context, m *Machine) error {
	if err := m.keep(modulesFile, i.content()); err != nil {
		return err
	}
	for _, module := range i.profile.Modules {
		if m.loaded(module) {
			continue
		}
		if _, err := m.Run(ctx, "modprobe", "--", module); err != nil {
			return err
		}
	}
	return nil
}

// compareKept compares a file that keeps settings over a boot. Without content there is no such file.
func (m *Machine) compareKept(name, content string) ([]Difference, error) {
	is, err := os.ReadFile(m.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && content == "":
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return []Difference{{"file " + name, isMissing, "written"}}, nil
	case err != nil:
		return nil, err
	case string(is) == content:
		return nil, nil
	case content == "":
		return []Difference{{"file " + name, "written", "removed"}}, nil
	}
	return []Difference{{"file " + name, "other content", "the profile's content"}}, nil
}

// keep writes or removes such a file.
func (m *Machine) keep(name, content string) error {
	if content == "" {
		if err := os.Remove(m.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return m.replaceFile(name, []byte(content), 0o644, 0, 0)
}

// sysctls are the settings of the kernel.
type sysctls struct{ profile *cluster.Profile }

// sysctlPath returns the file of a setting. A name with slashes may have dots in its parts, as sysctl(8) has it.
func sysctlPath(name string) string {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	return "/proc/sys/" + name
}

func (i *sysctls) content() string {
	if len(i.profile.Sysctls) == 0 {
		return ""
	}
	lines := []string{"# Written by Berth for the profile " + i.profile.Name + "."}
	for _, name := range slices.Sorted(maps.Keys(i.profile.Sysctls)) {
		lines = append(lines, name+" = "+i.profile.Sysctls[name])
	}
	return strings.Join(lines, "\n") + "\n"
}

// different returns the settings with another value, each with its value. It returns an error for those that the kernel
// does not have, which are missing.
func (i *sysctls) different(m *Machine) (map[string]string, error) {
	found := map[string]string{}
	var errs []error
	for name, want := range i.profile.Sysctls { // order-free: a map is filled
		b, err := os.ReadFile(m.path(sysctlPath(name)))
		if err != nil {
			errs = append(errs, fmt.Errorf("sysctl %s: the kernel does not have it: %w", name, err))
			found[name] = isMissing
			continue
		}
		if is := strings.Join(strings.Fields(string(b)), " "); is != strings.Join(strings.Fields(want), " ") {
			found[name] = is
		}
	}
	return found, errors.Join(errs...)
}

func (i *sysctls) compare(_ context.Context, m *Machine) (all []Difference, err error) {
	different, err := i.different(m)
	if slices.ContainsFunc(i.profile.Modules, func(name string) bool { return !m.loaded(name) }) {
		err = nil // a module may bring what the kernel lacks; it is loaded before the settings are applied
	}
	for _, name := range slices.Sorted(maps.Keys(different)) {
		all = append(all, Difference{"sysctl " + name, different[name], i.profile.Sysctls[name]})
	}
	kept, keptErr := m.compareKept(sysctlFile, i.content())
	return append(all, kept...), errors.Join(err, keptErr)
}

func (i *sysctls) apply(_ context.Context, m *Machine) error {
	if err := m.keep(sysctlFile, i.content()); err != nil {
		return err
	}
	different, err := i.different(m)
	errs := []error{err}
	for _, name := range slices.Sorted(maps.Keys(different)) {
		if different[name] == isMissing {
			continue
		}
		// the kernel takes a setting in one write; a file that is replaced is no setting
		errs = append(errs, os.WriteFile(m.path(sysctlPath(name)), []byte(i.profile.Sysctls[name]), 0o600))
	}
	return errors.Join(errs...)
}

// services restarts the services whose files have changed. Their names are kept in a file until they are restarted,
// because a file that is written already does not differ any more.
type services struct{}

// names returns the services to restart.
func (services) names(m *Machine) ([]string, error) {
	b, err := os.ReadFile(m.path(restartFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.Fields(string(b)), err
}

// add records services to restart.
func (s services) add(m *Machine, more []string) error {
	names, err := s.names(m)
	if err != nil || len(more) == 0 {
		return err
	}
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return m.replaceFile(restartFile, []byte(strings.Join(names, "\n")+"\n"), 0o600, -1, -1)
}

func (s services) compare(_ context.Context, m *Machine) (all []Difference, err error) {
	names, err := s.names(m)
	for _, name := range names {
		all = append(all, Difference{"service " + name, "runs with an old file", "restarted"})
	}
	return all, err
}

func (s services) apply(ctx context.Context, m *Machine) error {
	names, err := s.names(m)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		var err error
		switch {
		case m.HasSystemd():
			_, err = m.Run(ctx, "systemctl", "restart", "--", name)
		case m.hasProgram("service"):
			_, err = m.Run(ctx, "service", name, "restart")
		default:
			err = errors.New("the machine has neither systemd nor the program service to restart it")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restart %s: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(m.path(restartFile))
}

// file is a file of the profile.
type file struct{ spec cluster.ProfileFile }

func (f *file) compare(_ context.Context, m *Machine) ([]Difference, error) {
	d := Difference{Item: "file " + f.spec.Path, Is: isMissing, Want: "written"}
	info, err := os.Lstat(m.path(f.spec.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return []Difference{d}, nil
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("file %s: it is a folder: remove it first", f.spec.Path)
	}
	var is, want []string
	note := func(a, b string) {
		if a != b {
			is, want = append(is, a), append(want, b)
		}
	}
	content := "the profile's content"
	b, err := os.ReadFile(m.path(f.spec.Path))
	if err != nil || !info.Mode().IsRegular() || string(b) != f.spec.Content {
		note("other content", content)
	}
	note(modeText(info.Mode()), fmt.Sprintf("%04o", f.spec.ModeBits()))
	owner, group := f.spec.UserAndGroup()
	uid, gid, err := m.findOwner(owner, group)
	if err != nil { // an earlier item makes the user
		is, want = append(is, "no user "+owner), append(want, "owner "+owner)
	} else {
		gotUID, gotGID := ownerOf(info)
		note("owner "+strconv.Itoa(gotUID)+":"+strconv.Itoa(gotGID), "owner "+strconv.Itoa(uid)+":"+strconv.Itoa(gid))
	}
	if len(is) == 0 {
		return nil, nil
	}
	d.Is, d.Want = strings.Join(is, ", "), strings.Join(want, ", ")
	return []Difference{d}, nil
}

func (f *file) apply(_ context.Context, m *Machine) error {
	owner, group := f.spec.UserAndGroup()
	uid, gid, err := m.findOwner(owner, group)
	if err != nil {
		return err
	}
	if err := (services{}).add(m, f.spec.Restart); err != nil {
		return err
	}
	return m.replaceFile(f.spec.Path, []byte(f.spec.Content), fileMode(f.spec.ModeBits()), uid, gid)
}
