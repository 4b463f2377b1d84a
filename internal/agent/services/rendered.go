package services

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/agent/files"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// The rendered content of a container is in a folder below that of its attempt: <attempt>/told/<container>/ with the
// entries
//
//	0, 1, …   one folder for each folder of template files in the container, with these files
//	last      the content that the program got last, written last: without it the folder does not count
//
// The folder stays for restarts of the container in place and is removed with the attempt.
const (
	renderedDir     = "told"
	lastContentFile = "last"
)

// lastContent is the content that the program of a container got.
type lastContent struct {
	// Files are the checksums of the rendered files, by path. Env are the variables.
	Files map[string]string `json:"files,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	// Services are the addresses that Files and Env were made of.
	Services []lastService `json:"services,omitempty"`
}

type lastService struct {
	Cluster   string                    `json:"cluster,omitempty"`
	Service   string                    `json:"service"`
	Port      string                    `json:"port,omitempty"`
	Addresses []cluster.TemplateAddress `json:"addresses,omitempty"`
}

func (s *lastService) port() cluster.ServicePort {
	return cluster.ServicePort{ServiceName: cluster.ServiceName{Cluster: s.Cluster, Service: s.Service}, Port: s.Port}
}

// addresses returns the addresses of a service.
func (l *lastContent) addresses(p cluster.ServicePort) []cluster.TemplateAddress {
	for i := range l.Services {
		if l.Services[i].port() == p {
			return l.Services[i].Addresses
		}
	}
	return nil
}

// changes describes the differences from m in a few words.
func (l *lastContent) changes(m renderedContent) string {
	var names []string
	for _, p := range sortedPorts(m.lookup.services) {
		if name := p.String(); !slices.Equal(m.lookup.services[p], l.addresses(p)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return "what its files are made of changed"
	case 1:
		return "the addresses of service " + names[0] + " changed"
	}
	return "the addresses of services " + strings.Join(names, ", ") + " changed"
}

func sortedPorts[V any](m map[cluster.ServicePort]V) []cluster.ServicePort {
	list := make([]cluster.ServicePort, 0, len(m))
	for p := range m { // order-free: sorted below
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b cluster.ServicePort) int {
		return strings.Compare(a.String()+"/"+a.Port, b.String()+"/"+b.Port)
	})
	return list
}

// renderedFolder is the folder of the rendered content of one container.
type renderedFolder struct {
	dir       string
	container *cluster.Container
}

// last returns the content that the program got, nil for none.
func (r renderedFolder) last() *lastContent {
	last := &lastContent{}
	text, err := os.ReadFile(filepath.Join(r.dir, lastContentFile))
	if err != nil || json.Unmarshal(text, last) != nil {
		return nil
	}
	return last
}

// mounts returns the folders with files, as the container sees them.
func (r renderedFolder) mounts() (list []executor.Mount) {
	for i, folder := range r.container.TemplateFolders() {
		list = append(list, executor.Mount{Source: filepath.Join(r.dir, strconv.Itoa(i)), Path: folder, ReadOnly: true})
	}
	return list
}

// write writes the files that differ, each atomically; a file keeps its owner.
func (r renderedFolder) write(m renderedContent) error {
	folders := r.container.TemplateFolders()
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	for i := range folders {
		if err := os.MkdirAll(filepath.Join(r.dir, strconv.Itoa(i)), 0o755); err != nil { //nolint:gosec // the parent folder is private; the container's user enters this one
			return fmt.Errorf("write files: %w", err)
		}
	}
	for n := range r.container.Files {
		f := &r.container.Files[n]
		i := f.InFolder(folders)
		if i < 0 {
			continue
		}
		mode, err := strconv.ParseUint(f.Mode, 8, 12)
		if err != nil {
			return fmt.Errorf("file %s: %q is not a file mode: %w", f.Path, f.Mode, err)
		}
		name := filepath.Join(r.dir, strconv.Itoa(i), filepath.Base(f.Path))
		if text, err := os.ReadFile(name); err == nil && string(text) == m.texts[n] {
			continue
		}
		if err := files.Replace(filepath.Join(r.dir, "next"), name, []byte(m.texts[n]), os.FileMode(mode)); err != nil {
			return fmt.Errorf("write file %s: %w", f.Path, err)
		}
	}
	return nil
}

// differs compares m with the last content. It returns whether the program must restart, and otherwise the signals to
// send.
func (r renderedFolder) differs(m renderedContent, last *lastContent) (restart bool, signals []string, changed bool) {
	for i := range r.container.Services {
		u := &r.container.Services[i]
		if u.Env == "" || m.env[u.Env] == last.Env[u.Env] {
			continue
		}
		changed = true
		restart = restart || u.OnChange == cluster.ChangeRestart
	}
	for n := range r.container.Files {
		f := &r.container.Files[n]
		if !f.Template || sum(m.texts[n]) == last.Files[f.Path] {
			continue
		}
		changed = true
		restart = restart || f.OnChange == cluster.ChangeRestart
		if f.OnChange == cluster.ChangeSignal && !slices.Contains(signals, f.Signal) {
			signals = append(signals, f.Signal)
		}
	}
	return restart, signals, changed
}

// saveLast records the content that the program got.
func (r renderedFolder) saveLast(m renderedContent) error {
	last := lastContent{Files: map[string]string{}, Env: m.env}
	for n := range r.container.Files {
		if f := &r.container.Files[n]; f.Template {
			last.Files[f.Path] = sum(m.texts[n])
		}
	}
	for _, p := range sortedPorts(m.lookup.services) {
		last.Services = append(last.Services, lastService{p.Cluster, p.Service, p.Port, m.lookup.services[p]})
	}
	text, err := json.Marshal(&last)
	if err == nil {
		err = files.Replace(filepath.Join(r.dir, "next"), filepath.Join(r.dir, lastContentFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record the content that a container got: %w", err)
	}
	return nil
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}
