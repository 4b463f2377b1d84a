package machine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/ssh"
)

// accessFlags are the flags that say how machines are reached over SSH.
type accessFlags struct {
	user                 string
	identities           []string
	noAgent              bool
	knownHosts, hostKeys []string
	acceptNew            bool
	jump                 []string
	sudoFile             string
	askSudo              bool

	jumps        []ssh.Target // parsed
	sudoPassword string
}

func (f *accessFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&f.user, "user", "l", "", "user on the machines; default the name of this user")
	fs.StringArrayVarP(&f.identities, "identity", "i", nil, "`FILE` with a private key; may be given several times; "+
		"default the keys in ~/.ssh")
	fs.BoolVar(&f.noAgent, "no-agent", false, "do not use the SSH agent (SSH_AUTH_SOCK)")
	fs.StringArrayVar(&f.knownHosts, "known-hosts", nil, "`FILE` with the keys of machines; may be given several "+
		"times; default ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts")
	fs.StringArrayVar(&f.hostKeys, "host-key", nil, "`FINGERPRINT` of an accepted key, such as SHA256:…; may be given "+
		"several times. The known hosts do not count then")
	fs.BoolVar(&f.acceptNew, "accept-new-host-keys", false, "accept the keys of machines that no file knows, and add "+
		"them to the first file")
	fs.StringArrayVarP(&f.jump, "jump", "J", nil, "[USER@]`ADDRESS`[:PORT] of a jump host; several are used in order")
	fs.StringVar(&f.sudoFile, "sudo-password-file", "", "`FILE` with the password for sudo; default sudo without one")
	fs.BoolVar(&f.askSudo, "ask-sudo-password", false, "ask for the password for sudo")
}

// parse reads the address of a machine.
func (f *accessFlags) parse(text string) (m machineAddress, err error) {
	address := text
	if name, rest, ok := strings.Cut(text, "="); ok {
		if m.name, address = name, rest; !cluster.ValidNodeName(name) {
			return m, fmt.Errorf("%q: %q cannot name a node: want lower-case letters, digits, \"-\" and \".\"", text,
				name)
		}
	}
	m.target, err = ssh.ParseTarget(address, cmp.Or(f.user, ownUser()))
	return m, err
}

func (f *accessFlags) check(list *session.Faults) {
	for _, j := range f.jump {
		t, err := ssh.ParseTarget(j, cmp.Or(f.user, ownUser()))
		list.AddError("--jump", err)
		f.jumps = append(f.jumps, t)
	}
	for _, k := range f.hostKeys {
		if !strings.HasPrefix(k, "SHA256:") {
			list.Add("--host-key %q: want a fingerprint such as SHA256:…, as ssh-keygen -l prints it", k)
		}
	}
	if f.askSudo && f.sudoFile != "" {
		list.Add("--ask-sudo-password and --sudo-password-file exclude each other")
	}
	if len(f.hostKeys) > 0 && f.acceptNew {
		list.Add("--host-key and --accept-new-host-keys exclude each other")
	}
}

// open reads the keys, and asks for passwords.
func (f *accessFlags) open(sess *session.Session) (*ssh.Auth, *ssh.HostKeys, error) {
	auth := &ssh.Auth{
		Files: f.identities, Optional: len(f.identities) == 0,
		Passphrase: func(file string) ([]byte, error) { return askSecret(sess, "Passphrase of "+file) },
	}
	if auth.Optional {
		auth.Files = ssh.DefaultKeyFiles(homeFolder())
	}
	for i, file := range auth.Files {
		auth.Files[i] = expandHome(file)
	}
	if !f.noAgent {
		auth.AgentSocket = sess.Env("SSH_AUTH_SOCK")
	}
	if auth.Optional && auth.AgentSocket != "" {
		auth.Passphrase = nil // the agent has the usual keys
		auth.SkipEncrypted = true
	}
	if err := auth.Load(); err != nil {
		return nil, nil, err
	}
	keys := &ssh.HostKeys{Files: slices.Clone(f.knownHosts), Pinned: f.hostKeys, AcceptNew: f.acceptNew}
	if len(keys.Files) == 0 {
		keys.Files = ssh.DefaultKnownHosts(homeFolder())
	}
	var err error
	switch {
	case f.sudoFile != "":
		f.sudoPassword, err = datadir.ReadSecret("--sudo-password-file", f.sudoFile)
	case f.askSudo:
		var word []byte
		word, err = askSecret(sess, "Password for sudo on the machines")
		f.sudoPassword = string(word)
	}
	return auth, keys, err
}

// askSecret asks for a secret on the terminal.
func askSecret(sess *session.Session, what string) ([]byte, error) {
	in, ok := sess.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, fmt.Errorf("%s is needed, and standard input is not a terminal", what)
	}
	fmt.Fprintf(sess.Stderr, "%s: ", what)
	word, err := term.ReadPassword(int(in.Fd()))
	fmt.Fprintln(sess.Stderr)
	if err == nil && len(word) == 0 {
		err = errors.New("the answer is empty")
	}
	return word, err
}

// readFileOrInput reads a file; "-" is standard input.
func readFileOrInput(sess *session.Session, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(sess.Stdin, maxRequest))
	}
	return os.ReadFile(file)
}

// ownArch returns the architecture of this program.
func ownArch() string { return runtime.GOARCH }
