package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// Secrets are asked for when a container is made, written to a folder in memory, and kept nowhere else: neither in the
// agent's state nor in its own memory. The folder of an attempt is <root>/<uuid>/<container>/, in which there are
//
//	0, 1, …   a folder for each one in which the container finds files of secrets, with these files
//	env       the variables, in the form of executor.EncodeEnv
//	stamps    which values these are, written last: without it nothing counts
//	former/   values of before, newest last, which the programs may still say: for masking alone, by the agent
//	          and by what writes the log
//
// It stays for the restarts of the container in place, so that these need no server, and goes with the attempt.

const (
	secretsEnv    = "env"
	secretsStamps = "stamps"
	// mostFormer and formerBytes bound the files of former values that are kept of a container, in memory: the newest.
	mostFormer  = 256
	formerBytes = 8 * int64(cluster.MiB)
	// askLimit is how long one request for secrets may take.
	askLimit = 15 * time.Second
)

// secretSource is a Source that hands out secrets.
type secretSource interface {
	Secrets(ctx context.Context, r transport.SecretsRequest) (transport.SecretsReply, error)
}

// secretsFolder returns where the secrets of all attempts are, made where it is missing: in memory, and open to this
// user alone. Given, unless empty, is the only place that comes into question.
func secretsFolder(given string) (string, error) {
	places := []string{given}
	if given == "" {
		places = []string{fmt.Sprintf("/dev/shm/berth-secrets-%d", os.Geteuid())}
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			places = slices.Insert(places, 0, filepath.Join(dir, "berth-secrets"))
		}
		if os.Geteuid() == 0 {
			places = slices.Insert(places, 0, "/run/berth-secrets")
		}
	}
	var errs []error
	for _, dir := range places {
		if err := privateMemory(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// privateMemory makes a folder unless it is there, and says why it is not one in memory that only this user can open.
func privateMemory(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &fs); err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(dir), err)
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is not in memory (tmpfs)", filepath.Dir(dir))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone: remove it", dir)
	}
	return nil
}

// lookForSecrets finds out whether the node can hand out secrets, and tells once why not.
func (a *Agent) lookForSecrets(f *cluster.Facts) {
	if a.Volatile {
		return // what it reports is for others to say
	}
	if _, asks := a.Source.(secretSource); !asks {
		return
	}
	dir, err := secretsFolder(a.SecretsDir)
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	if text != "" && text != a.machine.noSecrets {
		a.Logger.Warn("the node hands out no secrets: there is no folder in memory for them", "error", text)
	}
	a.machine.noSecrets, a.machine.secretsDir = text, dir
	f.Secrets = err == nil
}

// secretsDir is where the secrets of an attempt are, "" where the node has no place for them.
func (a *Agent) secretsDir(uuid string) string {
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	if a.machine.secretsDir == "" {
		return ""
	}
	return filepath.Join(a.machine.secretsDir, uuid)
}

// handout is what a task knows of its secrets.
type handout struct {
	// mu is held while the folders are written.
	mu sync.Mutex
	// told are the stamps that the server told last, nil before; refreshing says that a goroutine brings the files to
	// them.
	told       map[string]string
	refreshing bool
}

// askSecrets asks the server for the secrets of the attempt, or for what a registry wants.
func (t *task) askSecrets(ctx context.Context, registry, container string) (transport.SecretsReply, error) {
	source, ok := t.agent.Source.(secretSource)
	if !ok {
		return transport.SecretsReply{}, errors.New("the server hands out no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return source.Secrets(ctx, transport.SecretsRequest{
		Node: t.agent.Name, Session: t.agent.marked().Session, Task: t.id, UUID: t.uuid,
		Revision: t.acted.Load().Revision,
		Registry: registry, Container: container,
	})
}

// placeSecrets writes the secrets of a container and names them in its spec. While no server answers those of the
// container's last run will do.
func (t *task) placeSecrets(ctx context.Context, c *cluster.Container, spec *executor.Spec) error {
	if len(c.Secrets) == 0 || t.agent.Volatile {
		return nil
	}
	root := t.agent.secretsDir(t.uuid)
	if root == "" {
		return fmt.Errorf("secrets: %w: the node has no folder in memory for them", executor.ErrUnsupported)
	}
	reply, err := t.askSecrets(ctx, "", "")
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	box := secretBox{filepath.Join(root, c.Name), c}
	switch {
	case err == nil:
		err = box.write(reply)
		if err == nil {
			err = box.stamp(reply)
		}
	case !errors.Is(err, transport.ErrRefused) && box.placed() != nil:
		t.agent.Logger.Warn("a container is made with the secrets of its last run: no server answers", "task", t.id,
			"attempt", t.attempt, "error", err)
		err = nil
	default:
		err = fmt.Errorf("ask for the secrets of container %s: %w", c.Name, err)
	}
	if err != nil {
		return err
	}
	spec.Secrets, spec.SecretEnv = box.mounts(), box.env()
	return nil
}

// credentials returns what is told to a registry that wants to know who asks for the container's image: by the secret
// that the container names, or the cluster's for the registry, or else what the node's own file says. To origin is
// written whose login that was, and to problem what went wrong meanwhile.
func (t *task) credentials(ctx context.Context, c *cluster.Container, origin,
	problem *atomic.Pointer[string],
) func(string) (string, string) {
	own := t.agent.Credentials
	if _, asks := t.agent.Source.(secretSource); !asks {
		return own
	}
	return func(registry string) (user, secret string) {
		reply, err := t.askSecrets(ctx, registry, c.Name)
		switch {
		case err == nil && reply.User != "":
			origin.Store(&reply.Login)
			return reply.User, string(reply.Password)
		case err == nil && len(reply.Missing) > 0:
			problem.Store(&reply.Missing[0])
		case err != nil:
			why := "the secrets for the registry could not be asked for: " + err.Error()
			problem.Store(&why)
		}
		if own == nil {
			return "", ""
		}
		return own(registry)
	}
}

// whoseLogin says where a login is renewed that a registry did not accept: in the secret with the name, or in the
// node's own file.
func whoseLogin(name *string, in string) string {
	switch {
	case name == nil:
		return "; a login for it is that of a secret (`berth secret set NAME --type registry`), or of the " +
			"file of --registry-logins of the node's agent"
	case *name == "":
		return "; it is that of a secret of the cluster " + in
	}
	return fmt.Sprintf("; it is that of the secret %s of the cluster %s: set it anew with `berth secret set "+
		"%s --type registry`", *name, in, *name)
}

// toldStamps takes in which values the secrets have now. What is begun in it ends with ctx.
func (t *task) toldStamps(ctx context.Context, stamps map[string]string) {
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	t.secrets.told = stamps
	if t.secrets.refreshing || t.agent.Volatile {
		return
	}
	t.secrets.refreshing = true
	t.agent.work.Go(func() { t.refreshSecrets(ctx) })
}

// refreshSecrets brings the files to the values that the server told of, until they have them or the attempt is over.
func (t *task) refreshSecrets(ctx context.Context) {
	p := t.agent.pause(retryFirst, lookSoon)
	for {
		done, err := t.refreshOnce(ctx)
		if err != nil && ctx.Err() == nil {
			t.agent.Logger.Warn("secrets that changed are not there yet", "task", t.id, "attempt", t.attempt, "error",
				err)
		}
		if done {
			return
		}
		timer := time.NewTimer(p.next())
		select {
		case <-ctx.Done():
		case <-t.ended:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// refreshOnce looks at all containers once. It is done once nothing differs; then another change begins anew.
func (t *task) refreshOnce(ctx context.Context) (done bool, err error) {
	stale, wait := t.stale()
	if len(stale) > 0 {
		reply, err := t.askSecrets(ctx, "", "")
		if err != nil {
			return errors.Is(err, transport.ErrRefused) && t.refreshed(true), err
		}
		for i := range stale {
			if err := t.renew(ctx, &stale[i], reply); err != nil {
				return false, err
			}
		}
		stale, wait = t.stale()
	}
	return len(stale) == 0 && !wait && t.refreshed(false), nil
}

// refreshed ends the refreshing unless the server told something else meanwhile.
func (t *task) refreshed(anyway bool) bool {
	stale, _ := t.stale()
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	if len(stale) > 0 && !anyway {
		return false
	}
	t.secrets.refreshing = false
	return true
}

// staleBox is a container of which secrets have other values than the server told.
type staleBox struct {
	secretBox
	changed []string // their names
}

// stale returns the containers whose secrets differ from what the server told; wait says that some are yet to be
// written.
func (t *task) stale() (list []staleBox, wait bool) {
	root, v := t.agent.secretsDir(t.uuid), t.view.Load()
	select {
	case <-t.ended:
		return nil, false
	default:
	}
	if root == "" || v == nil || v.def == nil {
		return nil, root != ""
	}
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	for i := range v.def.Containers {
		c := &v.def.Containers[i]
		if len(c.Secrets) == 0 {
			continue
		}
		s := staleBox{secretBox: secretBox{filepath.Join(root, c.Name), c}}
		placed := s.placed()
		if placed == nil {
			wait = wait || v.rec.Phase == attempt.PhaseNew || v.rec.Phase == attempt.PhasePreparing
			continue
		}
		for _, u := range c.Secrets {
			if now := t.secrets.told[u.Secret]; now != "" && now != placed[u.Secret] &&
				!slices.Contains(s.changed, u.Secret) {
				s.changed = append(s.changed, u.Secret)
			}
		}
		if len(s.changed) > 0 {
			list = append(list, s)
		}
	}
	return list, wait
}

// renew replaces the files of a container, sends the signals that its uses ask for, and then notes which values it has:
// what a crash between leaves is done again.
func (t *task) renew(ctx context.Context, s *staleBox, reply transport.SecretsReply) error {
	t.secrets.mu.Lock()
	err := s.write(reply)
	t.secrets.mu.Unlock()
	if err != nil {
		return err
	}
	var sent []string
	for _, u := range s.container.Secrets {
		if u.OnChange != cluster.SecretSignal || !slices.Contains(s.changed, u.Secret) ||
			slices.Contains(sent, u.Signal) {
			continue
		}
		sent = append(sent, u.Signal)
		if err := t.tellProgram(ctx, s.container.Name, u.Signal); err != nil {
			return err
		}
	}
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	t.agent.Logger.Info("secrets of a container were replaced", "task", t.id, "attempt", t.attempt, "container",
		s.container.Name, "secrets", s.changed, "signals", sent)
	return s.stamp(reply)
}

// tellProgram sends a signal to a container, if it runs.
func (t *task) tellProgram(ctx context.Context, container, name string) error {
	exec, id, err := t.running(container)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, signalTimeout)
		defer cancel()
		err = exec.Signal(ctx, id, unix.SignalNum("SIG"+name))
	}
	if errors.Is(err, executor.ErrNotRunning) || errors.Is(err, executor.ErrNotFound) {
		return nil // the next run finds the new values
	}
	return err
}

// secretBox is the folder in memory of the secrets of one container.
type secretBox struct {
	dir       string
	container *cluster.Container
}

// placed returns the stamps of the values that are there, nil where they are not all there.
func (b secretBox) placed() map[string]string {
	var stamps map[string]string
	text, err := os.ReadFile(filepath.Join(b.dir, secretsStamps))
	if err != nil || json.Unmarshal(text, &stamps) != nil {
		return nil
	}
	return stamps
}

// mounts are the folders with files, as the container finds them.
func (b secretBox) mounts() (list []executor.Mount) {
	for i, folder := range b.container.SecretFolders() {
		list = append(list, executor.Mount{Source: filepath.Join(b.dir, strconv.Itoa(i)), Path: folder, ReadOnly: true})
	}
	return list
}

// env is the file of variables, "" for none.
func (b secretBox) env() string {
	if slices.ContainsFunc(b.container.Secrets, func(u cluster.SecretUse) bool { return u.Env != "" }) {
		return filepath.Join(b.dir, secretsEnv)
	}
	return ""
}

// write writes what differs, each file at once; who owned one goes on owning it. Without all values nothing is written.
func (b secretBox) write(reply transport.SecretsReply) error {
	var missing []string
	for _, u := range b.container.Secrets {
		if _, ok := reply.Secrets[u.Secret]; !ok {
			missing = reply.Missing
		}
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	folders := b.container.SecretFolders()
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	var variables []string
	for _, u := range b.container.Secrets {
		value := reply.Secrets[u.Secret].Value
		if u.Env != "" {
			if strings.ContainsRune(string(value), 0) || len(u.Env)+1+len(value) > cluster.MaxArg {
				return fmt.Errorf("the secret %s cannot be the variable %s: it holds a zero byte, or more "+
					"than %d bytes; hand it over as a file", u.Secret, u.Env, cluster.MaxArg)
			}
			variables = append(variables, u.Env+"="+string(value))
			continue
		}
		mode, err := strconv.ParseUint(u.Mode, 8, 12)
		if err != nil {
			return fmt.Errorf("secret %s: %q is not a file mode: %w", u.Secret, u.Mode, err)
		}
		folder := filepath.Join(b.dir, strconv.Itoa(slices.Index(folders, filepath.Dir(u.File))))
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // in a folder that is closed; the container's user enters it
			return fmt.Errorf("write secrets: %w", err)
		}
		if err := b.replace(filepath.Join(folder, filepath.Base(u.File)), value, os.FileMode(mode)); err != nil {
			return err
		}
	}
	if b.env() == "" {
		return nil
	}
	return b.replace(b.env(), executor.EncodeEnv(variables), 0o400)
}

// stamp notes which values the container has.
func (b secretBox) stamp(reply transport.SecretsReply) error {
	stamps := map[string]string{}
	for _, u := range b.container.Secrets {
		stamps[u.Secret] = reply.Secrets[u.Secret].Stamp
	}
	text, err := json.Marshal(stamps)
	if err != nil {
		return err
	}
	return b.replace(filepath.Join(b.dir, secretsStamps), text, 0o600)
}

// replace puts a file in the place of another.
func (b secretBox) replace(name string, content []byte, mode os.FileMode) error {
	if err := b.keepFormer(name, content); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	if err := replaceFile(filepath.Join(b.dir, "next"), name, content, mode); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	return nil
}

// keepFormer keeps a file of values that is about to be replaced by another, and of such files the newest.
func (b secretBox) keepFormer(name string, next []byte) error {
	was, err := os.ReadFile(name)
	if os.IsNotExist(err) || err == nil && bytes.Equal(was, next) || filepath.Base(name) == secretsStamps &&
		filepath.Dir(name) == b.dir {
		return nil
	}
	dir := filepath.Join(b.dir, executor.FormerFolder)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return err
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	number := 1
	if len(all) > 0 {
		newest := all[len(all)-1].Name()
		if b, err := os.ReadFile(filepath.Join(dir, newest)); err == nil && bytes.Equal(b, was) {
			return nil // it was kept, and then not replaced
		}
		last, _ := strconv.Atoi(newest) // only this writes here
		number = last + 1
	}
	// Numbers of the same length, so that the names are in the order in which values were replaced.
	if err := os.Link(name, filepath.Join(dir, fmt.Sprintf("%020d", number))); err != nil {
		return err
	}
	left := formerBytes - int64(len(was))
	for i, e := range slices.Backward(all) {
		if info, err := e.Info(); err == nil {
			left -= info.Size()
		}
		if i < len(all)+1-mostFormer || left < 0 {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// mask takes the values of the attempt's secrets out of what its programs said, for what is told to others. Text is
// asked for that with so many bytes more than are wanted in the end.
func (t *task) mask(text func(more int) string) string {
	root := t.agent.secretsDir(t.uuid)
	var values []string
	if root != "" {
		boxes, _ := filepath.Glob(filepath.Join(root, "*")) // the pattern is a good one
		for _, box := range boxes {
			folders, _ := filepath.Glob(filepath.Join(box, "[0-9]*"))
			values = append(values, executor.SecretValues(folders, filepath.Join(box, secretsEnv))...)
		}
	}
	if values = executor.MaskedTexts(values); len(values) == 0 {
		return text(0)
	}
	out := text(len(values[0]))
	out = maskBeginning(out, values)
	for _, v := range values {
		out = strings.ReplaceAll(out, v, executor.Masked)
	}
	return maskEnd(out, values)
}

// maskEnd masks what the text ends with of a value that was cut.
func maskEnd(text string, values []string) string {
	for _, v := range values {
		for n := len(v) - 1; n >= executor.ShortSecret; n-- {
			if strings.HasSuffix(text, v[:n]) {
				return text[:len(text)-n] + executor.Masked
			}
		}
	}
	return text
}

// maskBeginning masks what the text begins with of a value that was cut.
func maskBeginning(text string, values []string) string {
	for _, v := range values {
		for from := 1; len(v)-from >= executor.ShortSecret; from++ {
			if strings.HasPrefix(text, v[from:]) {
				return executor.Masked + text[len(v)-from:]
			}
		}
	}
	return text
}

// maskText is mask for a text that is whole.
func (t *task) maskText(s string) string { return t.mask(func(int) string { return s }) }
