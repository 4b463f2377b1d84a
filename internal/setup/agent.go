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

	unitDir        = "/etc/systemd/system/"
	unitFile       = unitDir + unitName
	unitName       = "berth-agent.service"
	standaloneUnit = "berth-standalone.service"
	// certificateFile exists once the agent has joined.
	certificateFile = DataDir + "/agent/pki/self.crt"
	// serverDir exists on a machine with a server of its own.
	serverDir = DataDir + "/server"
)

// command returns the arguments of the program that runs the agent.
func (a *Agent) command() []string {
	if a.Standalone {
		return append([]string{"standalone", "--data-dir", DataDir}, a.Arguments...)
	}
	return append([]string{"agent", "--data-dir", DataDir, "--join-token-file", TokenFile}, a.Arguments...)
}

// binary is a binary of the machine, such as this program. The checksum may be shortened, and then the path is empty.
type binary struct{ path, sum string }

// shortSum is the length of a shortened checksum, in digits.
const shortSum = 16

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
func (b *binary) place() string { return VersionsDir + "/" + b.sum[:shortSum] + "/berth" }

// installedSum returns the checksum in the name of the installed binary, or "".
func (m *Machine) installedSum() string {
	to, err := os.Readlink(m.path(BinaryLink))
	if err != nil {
		return ""
	}
	return filepath.Base(filepath.Dir(to))
}

func (b *binary) compare(ctx context.Context, m *Machine) ([]Difference, error) {
	d := Difference{"binary " + BinaryLink, isMissing, "sha256 " + b.sum[:shortSum]}
	if is := m.installedSum(); is != "" {
		d.Is = "sha256 " + is
	}
	if d.Is != d.Want {
		return []Difference{d}, nil
	}
	return (&stored{b}).compare(ctx, m)
}

func (b *binary) apply(ctx context.Context, m *Machine) error {
	if err := (&stored{b}).apply(ctx, m); err != nil {
		return err
	}
	return m.link(b.place())
}

// stored is a binary in the folder of its version, which need not be the present one.
type stored struct{ binary *binary }

func (s *stored) compare(_ context.Context, m *Machine) ([]Difference, error) {
	sum, err := Checksum(m.path(s.binary.place()))
	d := Difference{"binary " + s.binary.place(), isMissing, "sha256 " + s.binary.sum[:shortSum]}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Difference{d}, nil
	case err == nil && sum != s.binary.sum:
		d.Is = "damaged"
		return []Difference{d}, nil
	}
	return nil, err
}

func (s *stored) apply(_ context.Context, m *Machine) error {
	content, err := os.Open(s.binary.path)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	return m.replaceFrom(s.binary.place(), content, 0o755, -1, -1)
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

// runsBinary reports whether a process, 0 for none, runs a binary.
func runsBinary(m *Machine, pid int, b *binary) bool {
	if pid == 0 {
		return false
	}
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

func (u *unit) name() string {
	if u.agent.Standalone {
		return standaloneUnit
	}
	return unitName
}

// content returns the unit. A stop ends the agent alone: tasks continue, and the next agent finds them. Starts have no
// limit, because upgrades start the agent as well: an agent that ends at once would use up the starts, and the one
// before could not be started any more.
func (u *unit) content() string {
	words := append([]string{BinaryLink}, u.agent.command()...)
	for i, w := range words {
		words[i] = unitWord(w)
	}
	return `# Written by Berth.
[Unit]
Description=Berth
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

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
	is, err := os.ReadFile(m.path(unitDir + u.name()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	pid, enabled, err := m.unitState(ctx, u.name())
	if err != nil {
		return nil, err
	}
	return u.differences(m, string(is) == u.content() && enabled, runsBinary(m, pid, u.binary)), nil
}

// unitState returns the process of a service of systemd, 0 if none runs, and whether a boot starts it.
func (m *Machine) unitState(ctx context.Context, name string) (pid int, enabled bool, err error) {
	out, err := m.Run(ctx, "systemctl", "show", "--property=MainPID,UnitFileState,ActiveState", "--", name)
	if err != nil {
		return 0, false, err
	}
	show := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		show[name] = value
	}
	if pid, err = strconv.Atoi(show["MainPID"]); err != nil || show["ActiveState"] != "active" {
		pid = 0
	}
	return pid, show["UnitFileState"] == "enabled", nil
}

func (u *unit) apply(ctx context.Context, m *Machine) error {
	if err := u.writeToken(m); err != nil {
		return err
	}
	if err := m.replaceFile(unitDir+u.name(), []byte(u.content()), 0o644, -1, -1); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"daemon-reload"}, {"enable", "--quiet", "--", u.name()}, {"restart", "--", u.name()},
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
	b, err := json.Marshal(s.agent.command())
	return append(b, '\n'), err
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
	return s.differences(m, string(is) == string(want), runsBinary(m, supervisor{m}.pid(), s.binary)), nil
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
	return supervisor{m}.restart(ctx, s.binary)
}

// agentRuns reports whether the agent runs a binary.
func (m *Machine) agentRuns(ctx context.Context, b *binary) (bool, error) {
	if !m.HasSystemd() {
		return runsBinary(m, supervisor{m}.pid(), b), nil
	}
	pid, _, err := m.unitState(ctx, unitName)
	return runsBinary(m, pid, b), err
}

// restartAgent makes the agent run the binary that BinaryLink leads to, with its present arguments.
func (m *Machine) restartAgent(ctx context.Context, b *binary) error {
	if !m.HasSystemd() {
		return supervisor{m}.restart(ctx, b)
	}
	_, err := m.Run(ctx, "systemctl", "restart", "--", unitName)
	return err
}
