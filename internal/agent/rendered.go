package agent

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
	"syscall"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// What a container is told of services stands in a folder below that of its attempt: <attempt>/told/<container>/, in
// which there are
//
//	0, 1, …   a folder for each one in which the container finds files made from templates, with these files
//	last      what its program was told last, written last: without it nothing counts
//
// It stays for the restarts of the container in place, and goes with the attempt.
const (
	toldFolder = "told"
	toldFile   = "last"
)

// toldLast is what the program of a container was told.
type toldLast struct {
	// Files are the sums of the texts that were made from templates, by path, and Env the variables.
	Files map[string]string `json:"files,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	// Services are the addresses that both were made of.
	Services []toldService `json:"services,omitempty"`
}

type toldService struct {
	Cluster   string                    `json:"cluster,omitempty"`
	Service   string                    `json:"service"`
	Port      string                    `json:"port,omitempty"`
	Addresses []cluster.TemplateAddress `json:"addresses,omitempty"`
}

func (s *toldService) port() cluster.ServicePort {
	return cluster.ServicePort{ServiceName: cluster.ServiceName{Cluster: s.Cluster, Service: s.Service}, Port: s.Port}
}

// addresses returns those of a service.
func (l *toldLast) addresses(p cluster.ServicePort) []cluster.TemplateAddress {
	for i := range l.Services {
		if l.Services[i].port() == p {
			return l.Services[i].Addresses
		}
	}
	return nil
}

// changes says in a few words what is another than what was told.
func (l *toldLast) changes(m made) string {
	var names []string
	for _, p := range sortedPorts(m.look.services) {
		if name := p.String(); !slices.Equal(m.look.services[p], l.addresses(p)) && !slices.Contains(names, name) {
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
	for p := range m { // order-free: sorted next
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b cluster.ServicePort) int {
		return strings.Compare(a.String()+"/"+a.Port, b.String()+"/"+b.Port)
	})
	return list
}

// rendered is the folder of what one container is told.
type rendered struct {
	dir       string
	container *cluster.Container
}

func (t *task) renderedOf(c *cluster.Container) rendered {
	return rendered{filepath.Join(t.agent.taskDir(t.uuid), toldFolder, c.Name), c}
}

// told returns what the program was told, nil for nothing.
func (r rendered) told() *toldLast {
	last := &toldLast{}
	text, err := os.ReadFile(filepath.Join(r.dir, toldFile))
	if err != nil || json.Unmarshal(text, last) != nil {
		return nil
	}
	return last
}

// mounts are the folders with files, as the container finds them.
func (r rendered) mounts() (list []executor.Mount) {
	for i, folder := range r.container.TemplateFolders() {
		list = append(list, executor.Mount{Source: filepath.Join(r.dir, strconv.Itoa(i)), Path: folder, ReadOnly: true})
	}
	return list
}

// write writes the files that differ, each at once; who owned one goes on owning it.
func (r rendered) write(m made) error {
	folders := r.container.TemplateFolders()
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	for i := range folders {
		if err := os.MkdirAll(filepath.Join(r.dir, strconv.Itoa(i)), 0o755); err != nil { //nolint:gosec // in a folder that is closed; the container's user enters it
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
		if err := replaceFile(filepath.Join(r.dir, "next"), name, []byte(m.texts[n]), os.FileMode(mode)); err != nil {
			return fmt.Errorf("write file %s: %w", f.Path, err)
		}
	}
	return nil
}

// differs compares with what the program was told: whether it has to be restarted, and else which signals it gets.
func (r rendered) differs(m made, last *toldLast) (restart bool, signals []string, changed bool) {
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

// note notes what the program was told.
func (r rendered) note(m made) error {
	last := toldLast{Files: map[string]string{}, Env: m.env}
	for n := range r.container.Files {
		if f := &r.container.Files[n]; f.Template {
			last.Files[f.Path] = sum(m.texts[n])
		}
	}
	for _, p := range sortedPorts(m.look.services) {
		last.Services = append(last.Services, toldService{p.Cluster, p.Service, p.Port, m.look.services[p]})
	}
	text, err := json.Marshal(&last)
	if err == nil {
		err = replaceFile(filepath.Join(r.dir, "next"), filepath.Join(r.dir, toldFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note what a container was told: %w", err)
	}
	return nil
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// replaceFile puts a file in the place of another, at once, by way of next, which is on the same file system. Who owned
// the other one owns it.
func replaceFile(next, name string, content []byte, mode os.FileMode) error {
	_ = os.Remove(next)
	err := os.WriteFile(next, content, 0o600)
	if old, statErr := os.Lstat(name); err == nil && statErr == nil && os.Geteuid() == 0 {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			err = os.Lchown(next, int(st.Uid), int(st.Gid))
		}
	}
	if err == nil {
		err = os.Chmod(next, mode)
	}
	if err == nil {
		err = os.Rename(next, name)
	}
	return err
}
