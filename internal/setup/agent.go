package setup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the files of the agent.
const (
	// DataDir is the folder of the agent's data.
	DataDir = "/var/lib/berth"
	// TokenFile has the join token until the agent has joined.
	TokenFile = StateDir + "/join-token"
	// ArgumentsFile has the arguments of `berth agent` for a machine without systemd, as a JSON list.
	ArgumentsFile = StateDir + "/agent.json"
	// LogFile has the log of the agent on a machine without systemd.
	LogFile = "/var/log/berth-agent.log"

	unitFile       = "/etc/systemd/system/" + unitName
	unitName       = "berth-agent.service"
	supervisorFile = "/run/berth-supervisor.pid"
	// certificateFile exists once the agent has joined.
	certificateFile = DataDir + "/agent/pki/self.crt"
	// startLimit bounds the time until a started supervisor holds its lock.
	startLimit = 10 * time.Second
)

// AgentArguments returns the arguments of the agent of a machine.
func AgentArguments(own []string) []string {
	return append([]string{"agent", "--data-dir", DataDir, "--join-token-file", TokenFile}, own...)
}

// binary is this program, as the binary of the machine.
type binary struct{ path, sum string }

// ownBinary returns this program.
func ownBinary() (*binary, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	sum, err := Checksum(path)
	if err != nil {
		return nil, fmt.Errorf("read this program: %w", err)
	}
	return &binary{path, sum}, nil
}

// Checksum returns the SHA-256 of a file in hexadecimal digits.
func Checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// place is where the binary is installed: a folder for each checksum, so that an upgrade can go back.
func (b *binary) place() string { return VersionsDir + "/" + b.sum[:16] + "/berth" }

// installedSum returns the checksum in the name of the installed binary, or "".
func (m *Machine) installedSum() string {
	to, err := os.Readlink(m.path(BinaryLink))
	if err != nil {
		return ""
	}
	return filepath.Base(filepath.Dir(to))
}

func (b *binary) compare(_ context.Context, m *Machine) ([]Difference, error) {
	d := Difference{"binary " + BinaryLink, isMissing, "sha256 " + b.sum[:16]}
	if is := m.installedSum(); is != "" {
		d.Is = "sha256 " + is
	}
	if d.Is != d.Want {
		return []Difference{d}, nil
	}
	sum, err := Checksum(m.path(b.place()))
	if errors.Is(err, fs.ErrNotExist) || err == nil && sum != b.sum {
		d.Is = "damaged"
		return []Difference{d}, nil
	}
	return nil, err
}

func (b *binary) apply(_ context.Context, m *Machine) error {
	content, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	if err := m.replaceFile(b.place(), content, 0o755, -1, -1); err != nil {
		return err
	}
	return m.link(b.place())
}

// link makes BinaryLink lead to a binary, in one step.
func (m *Machine) link(to string) error {
	temporary := m.path(BinaryLink) + ".new"
	if err := os.MkdirAll(filepath.Dir(temporary), 0o755); err != nil { //nolint:gosec // every user runs the program
		return err
	}
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, m.path(BinaryLink))
}

// agentService returns the item that runs the agent: a unit of systemd, or our own supervisor.
func (m *Machine) agentService(a *Agent, b *binary) item {
	s := service{agent: a, binary: b}
	if m.HasSystemd() {
		return &unit{s}
	}
	return &supervised{s}
}

// agentItem is the name of the item that runs the agent.
const agentItem = "agent"

// ReplacesAgent reports whether another process of the agent runs once the difference is gone.
func (d Difference) ReplacesAgent() bool { return d.Item == agentItem }

// service has what both kinds of services share.
type service struct {
	agent  *Agent
	binary *binary
}

// writeToken hands the join token to an agent without a certificate.
func (s *service) writeToken(m *Machine) error {
	if s.agent.JoinToken == "" || m.has(certificateFile) {
		return nil
	}
	return m.replaceFile(TokenFile, []byte(s.agent.JoinToken+"\n"), 0o600, -1, -1)
}

// needsToken reports whether the agent cannot join yet.
func (s *service) needsToken(m *Machine) bool {
	if s.agent.JoinToken == "" || m.has(certificateFile) {
		return false
	}
	is, err := os.ReadFile(m.path(TokenFile))
	return err != nil || strings.TrimSpace(string(is)) != s.agent.JoinToken
}

// differences returns what differs between two descriptions of the service.
func (s *service) differences(m *Machine, config, runs bool) (all []Difference) {
	d := Difference{Item: agentItem, Want: "runs"}
	switch {
	case !config:
		d.Is = "other settings, or none"
	case s.needsToken(m):
		d.Is = "not joined"
	case !runs:
		d.Is = "does not run this binary"
	default:
		return nil
	}
	return []Difference{d}
}

// runsBinary reports whether the process runs a binary.
func runsBinary(m *Machine, pid int, b *binary) bool {
	exe, err := os.Readlink(m.path(fmt.Sprintf("/proc/%d/exe", pid)))
	return err == nil && exe == b.place()
}

// RemoveToken deletes the join token once the agent has joined.
func (m *Machine) RemoveToken() error {
	if !m.has(certificateFile) {
		return nil
	}
	if err := os.Remove(m.path(TokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the join token: %w", err)
	}
	return nil
}

// unit is a service of systemd.
type unit struct{ service }

// content returns the unit. A stop ends the agent alone: tasks continue, and the next agent finds them.
func (u *unit) content() string {
	words := append([]string{BinaryLink}, AgentArguments(u.agent.Arguments)...)
	for i, w := range words {
		words[i] = unitWord(w)
	}
	return `# Written by Berth.
[Unit]
Description=Berth agent
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart=` + strings.Join(words, " ") + `
Restart=always
RestartSec=2
StateDirectory=berth
StateDirectoryMode=0711
KillMode=process
Delegate=yes
LimitCORE=infinity
LimitNOFILE=1048576
LimitNPROC=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
`
}

// unitWord quotes an argument as systemd.service(5) and systemd.syntax(7) describe it.
func unitWord(w string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(w) + `"`
}

func (u *unit) compare(ctx context.Context, m *Machine) ([]Difference, error) {
	is, err := os.ReadFile(m.path(unitFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out, err := m.Run(ctx, "systemctl", "show", "--property=MainPID,UnitFileState,ActiveState", "--", unitName)
	if err != nil {
		return nil, err
	}
	show := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		show[name] = value
	}
	pid, err := strconv.Atoi(show["MainPID"])
	runs := err == nil && pid > 0 && show["ActiveState"] == "active" && runsBinary(m, pid, u.binary)
	return u.differences(m, string(is) == u.content() && show["UnitFileState"] == "enabled", runs), nil
}

func (u *unit) apply(ctx context.Context, m *Machine) error {
	if err := u.writeToken(m); err != nil {
		return err
	}
	if err := m.replaceFile(unitFile, []byte(u.content()), 0o644, -1, -1); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"daemon-reload"}, {"enable", "--quiet", "--", unitName}, {"restart", "--", unitName},
	} {
		if _, err := m.Run(ctx, "systemctl", arguments...); err != nil {
			return err
		}
	}
	return nil
}

// supervised is an agent under our own supervisor.
type supervised struct{ service }

func (s *supervised) content() ([]byte, error) {
	b, err := json.Marshal(AgentArguments(s.agent.Arguments))
	return append(b, '\n'), err
}

// supervisor returns the process of the supervisor; 0 if none runs.
func (m *Machine) supervisor() int {
	f, err := os.Open(m.path(supervisorFile))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0 // its holder has ended
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

func (s *supervised) compare(_ context.Context, m *Machine) ([]Difference, error) {
	want, err := s.content()
	if err != nil {
		return nil, err
	}
	is, err := os.ReadFile(m.path(ArgumentsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	pid := m.supervisor()
	return s.differences(m, string(is) == string(want), pid > 0 && runsBinary(m, pid, s.binary)), nil
}

func (s *supervised) apply(ctx context.Context, m *Machine) error {
	if err := s.writeToken(m); err != nil {
		return err
	}
	content, err := s.content()
	if err != nil {
		return err
	}
	if err := m.replaceFile(ArgumentsFile, content, 0o600, -1, -1); err != nil {
		return err
	}
	if pid := m.supervisor(); pid > 0 {
		// it starts again with the new binary and the new arguments
		if err := unix.Kill(pid, unix.SIGHUP); err != nil {
			return fmt.Errorf("signal the supervisor: %w", err)
		}
		return s.await(ctx, m)
	}
	if err := startDetached(m.path(BinaryLink), m.path(LogFile), "machine", "supervise"); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	return s.await(ctx, m)
}

// await waits until the supervisor runs the binary.
func (s *supervised) await(ctx context.Context, m *Machine) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if pid := m.supervisor(); pid > 0 && runsBinary(m, pid, s.binary) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the supervisor of the agent does not run: see " + LogFile)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
