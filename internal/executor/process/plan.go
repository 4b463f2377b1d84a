package process

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// plan is the supervisor's input: the spec with everything resolved.
type plan struct {
	ID           executor.ID
	Labels       map[string]string
	Args         []string
	Env          []string
	Dir          string // the working folder
	User         identity
	Capabilities []int
	Attach       []attachment
	ReadOnlyRoot bool
	Scratch      string // an own folder, for mounting; the launcher makes it
	LogDir       string
	Resources    cluster.Resources
	CPUs         []int `json:",omitempty"` // none: all
	Subcommand   string
	CgroupParent string // empty: no cgroup
	Network      string `json:",omitempty"` // the file of a network namespace; empty: the agent's
	// SecretEnv is the file in memory that further variables are read from.
	SecretEnv string `json:",omitempty"`
	// SecretFolders are the folders with files of secrets.
	SecretFolders []executor.Mount `json:",omitempty"`
	// Isolation, unless nil, isolates the program.
	Isolation *isolation `json:",omitempty"`

	files   []cluster.File
	specDir string
	ownDir  bool
	// rendered are the folders with files that the agent replaces.
	rendered []executor.Mount
	copies   []executor.Mount
}

// identity is a user as the kernel knows it.
type identity struct {
	UID, GID int
	Groups   []int
	home     string
}

// attachment is something to be seen at an absolute path: a bind of Source, or memory of Size bytes.
type attachment struct {
	Field    string
	Path     string
	Source   string
	ReadOnly bool
	Size     int64
}

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func unsupported(field, why string) error {
	return fmt.Errorf("%s: %w: %s", field, executor.ErrUnsupported, why)
}

// newPlan resolves a spec. It touches no file.
func (e *Executor) newPlan(spec executor.Spec) (*plan, error) {
	c := &spec.Container
	if !validID(spec.ID) {
		return nil, fmt.Errorf("%q is not the id of a container", spec.ID)
	}
	if len(c.Command) == 0 {
		return nil, unsupported("command", "the process executor runs no images, so the manifest must name a command")
	}
	who, err := e.userOf(c)
	if err != nil {
		return nil, err
	}
	caps, err := capabilityNumbers(c.Capabilities)
	if err != nil {
		return nil, err
	}
	if len(caps) > 0 && os.Geteuid() != 0 {
		return nil, unsupported("capabilities", "only an agent that is root can give them")
	}
	if spec.Network != "" && os.Geteuid() != 0 {
		return nil, unsupported("network", "only an agent that is root can give a network of its own")
	}
	cpus, err := parseCPUs(spec.CPUs)
	if err != nil {
		return nil, err
	}
	p := &plan{
		CPUs: cpus, Network: spec.Network,
		ID: spec.ID, Labels: spec.Labels, Args: slices.Concat(c.Command, c.Args), Dir: c.Dir, User: who,
		Capabilities: caps, ReadOnlyRoot: c.ReadOnlyRoot, LogDir: spec.LogDir, Resources: c.Resources,
		Scratch: filepath.Join(spec.Dir, "scratch"), files: c.Files, specDir: spec.Dir,
		SecretEnv: spec.SecretEnv, SecretFolders: spec.Secrets, rendered: spec.Rendered, copies: spec.Copies,
	}
	if p.Dir == "" {
		p.Dir, p.ownDir = filepath.Join(spec.Dir, "work"), true
	}
	p.Env = environment(spec.Env, "BERTH_DIR="+filepath.Join(spec.Dir, "work"), "HOME="+who.home, defaultPath)
	for i, f := range c.Files {
		source := filepath.Join(spec.Dir, "files", strconv.Itoa(i))
		p.Attach = append(p.Attach, attachment{Field: "files", Path: f.Path, Source: source, ReadOnly: true})
	}
	for _, m := range spec.Mounts {
		p.Attach = append(p.Attach, attachment{Field: "mounts", Path: m.Path, Source: m.Source, ReadOnly: m.ReadOnly})
	}
	for _, m := range spec.Secrets {
		p.Attach = append(p.Attach, attachment{Field: "secrets", Path: m.Path, Source: m.Source, ReadOnly: true})
	}
	for _, m := range spec.Rendered {
		p.Attach = append(p.Attach, attachment{Field: "files", Path: m.Path, Source: m.Source, ReadOnly: true})
	}
	for _, t := range c.Tmpfs {
		size := t.Size
		if size == 0 {
			size = 64 * cluster.MiB
		}
		p.Attach = append(p.Attach, attachment{Field: "tmpfs", Path: t.Path, Size: int64(size)})
	}
	for i := range p.Attach {
		a := &p.Attach[i]
		if a.Path = filepath.Clean(a.Path); !filepath.IsAbs(a.Path) || a.Path == "/" {
			return nil, unsupported(a.Field, fmt.Sprintf("%q is not an absolute path below /", a.Path))
		}
	}
	slices.SortStableFunc(p.Attach, func(a, b attachment) int { return strings.Compare(a.Path, b.Path) })
	if e.isApart(c) {
		return p, p.isolate(&spec, e.cfg.Hidden)
	}
	return p, nil
}

func validID(id executor.ID) bool {
	s := string(id)
	return s != "" && len(s) <= 76 && !strings.ContainsAny(s, "/\x00") && s[0] != '.'
}

// environment adds those of the defaults whose names env lacks.
func environment(env []string, defaults ...string) []string {
	env = slices.Clone(env)
	for _, d := range defaults {
		name, _, _ := strings.Cut(d, "=")
		if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
			env = append(env, d)
		}
	}
	return env
}

// resolveUser reads "uid", "uid:gid", "name" or "name:group". Empty text is the agent's own user.
func resolveUser(s string) (identity, error) {
	me := identity{UID: os.Geteuid(), GID: os.Getegid(), home: "/"}
	if s == "" {
		me.Groups, _ = os.Getgroups()
		if u, err := user.LookupId(strconv.Itoa(me.UID)); err == nil {
			me.home = u.HomeDir
		}
		return me, nil
	}
	name, group, hasGroup := strings.Cut(s, ":")
	id := identity{home: "/"}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	var unknown user.UnknownUserIdError
	uid, numErr := strconv.ParseUint(name, 10, 31)
	switch {
	case err == nil:
		id.UID, _ = strconv.Atoi(u.Uid)
		id.GID, _ = strconv.Atoi(u.Gid)
		id.home = u.HomeDir
		if gids, err := u.GroupIds(); err == nil && !hasGroup {
			for _, g := range gids {
				n, _ := strconv.Atoi(g)
				id.Groups = append(id.Groups, n)
			}
		}
	case numErr == nil && (errors.As(err, &unknown) || uid > 0):
		id.UID, id.GID = int(uid), int(uid)
	default:
		return identity{}, fmt.Errorf("user: %q is not a user of the node", name)
	}
	if hasGroup {
		if id.GID, err = resolveGroup(group); err != nil {
			return identity{}, err
		}
	}
	if me.UID != 0 && (id.UID != me.UID || id.GID != me.GID) {
		return identity{}, unsupported("user", "only an agent that is root can run programs as another user")
	}
	return id, nil
}

func resolveGroup(s string) (int, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(s)
	if err != nil {
		return 0, fmt.Errorf("user: %q is not a group of the node", s)
	}
	return strconv.Atoi(g.Gid)
}

// makeFiles writes the manifest's files and makes the working folder, all the user's own.
func (p *plan) makeFiles() error {
	work := filepath.Join(p.specDir, "work")
	dirs := []string{work}
	if len(p.files) > 0 {
		dirs = append(dirs, filepath.Join(p.specDir, "files"))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make container folder: %w", err)
		}
	}
	if err := p.own(work); err != nil {
		return err
	}
	if err := p.makeTemp(); err != nil {
		return err
	}
	if err := p.makeCopies(); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := executor.OwnSecrets(slices.Concat(p.SecretFolders, p.rendered), "", p.User.UID,
			p.User.GID); err != nil {
			return err
		}
	}
	for i, f := range p.files {
		mode := uint64(0o644)
		if f.Mode != "" {
			var err error
			if mode, err = strconv.ParseUint(f.Mode, 8, 12); err != nil {
				return fmt.Errorf("files: %q is not a file mode: %w", f.Mode, err)
			}
		}
		name := filepath.Join(p.specDir, "files", strconv.Itoa(i))
		_ = os.Remove(name)
		if err := os.WriteFile(name, []byte(f.Content), 0o600); err != nil {
			return fmt.Errorf("write file %s: %w", f.Path, err)
		}
		if err := p.own(name); err != nil {
			return err
		}
		if err := os.Chmod(name, os.FileMode(mode)); err != nil {
			return fmt.Errorf("write file %s: %w", f.Path, err)
		}
	}
	return nil
}

func (p *plan) own(name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := os.Chown(name, p.User.UID, p.User.GID); err != nil {
		return fmt.Errorf("give container its folder: %w", err)
	}
	return nil
}
