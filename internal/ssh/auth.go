package ssh

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// ErrRefused means that the machine accepted none of the keys.
var ErrRefused = errors.New("the machine accepts none of the keys")

var errEncrypted = errors.New("it has a passphrase: add it to an SSH agent (ssh-add)")

// ErrNoKey means that there is no key to show.
var ErrNoKey = errors.New("there is no key to show: give one with --identity, or start an SSH agent with one")

// Auth has the keys that a user shows to machines. It is safe for concurrent use once Load has returned.
type Auth struct {
	// Files are files of private keys. A file that does not exist is an error, unless Optional is set.
	Files    []string
	Optional bool
	// AgentSocket, unless empty, is the socket of an SSH agent, whose keys are tried after those of the files.
	AgentSocket string
	// SkipEncrypted leaves out keys with a passphrase.
	SkipEncrypted bool
	// Passphrase, unless nil, returns the passphrase of an encrypted key.
	Passphrase func(file string) ([]byte, error)

	signers []ssh.Signer
}

// DefaultKeyFiles returns the usual files of the user's keys, the strongest kind first.
func DefaultKeyFiles(home string) []string {
	var files []string
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		files = append(files, filepath.Join(home, ".ssh", name))
	}
	return files
}

// Load reads the key files. The error joins all failures.
func (a *Auth) Load() error {
	var errs []error
	for _, file := range a.Files {
		signer, err := a.read(file)
		switch {
		case a.Optional && errors.Is(err, fs.ErrNotExist), a.SkipEncrypted && errors.Is(err, errEncrypted):
		case err != nil:
			errs = append(errs, fmt.Errorf("read the key %s: %w", file, err))
		default:
			a.signers = append(a.signers, signer)
		}
	}
	return errors.Join(errs...)
}

func (a *Auth) read(file string) (ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(b)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); !encrypted {
		return signer, err
	}
	if a.Passphrase == nil {
		return nil, errEncrypted
	}
	word, err := a.Passphrase(file)
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKeyWithPassphrase(b, word)
}

// methods returns the methods of authentication, and a function that releases them.
func (a *Auth) methods() (methods []ssh.AuthMethod, done func(), err error) {
	signers, done := a.signers, func() {}
	if a.AgentSocket != "" {
		conn, err := net.Dial("unix", a.AgentSocket) //nolint:noctx // a socket of this machine answers at once
		if err == nil {
			done = func() { _ = conn.Close() }
			held, err := agent.NewClient(conn).Signers()
			if err == nil {
				signers = append(slices.Clip(signers), held...)
			}
		}
	}
	if len(signers) == 0 {
		done()
		return nil, nil, ErrNoKey
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signers...)}, done, nil
}

// explain returns the error of a handshake in plain words.
func (a *Auth) explain(t Target, err error) error {
	if e, ok := errors.AsType[*HostKeyError](err); ok {
		return e // the library adds nothing
	}
	if strings.Contains(err.Error(), "unable to authenticate") {
		return fmt.Errorf("%w that were tried for the user %s (%s)", ErrRefused, t.User, a.sources())
	}
	if strings.Contains(err.Error(), "connection reset") || strings.HasSuffix(err.Error(), "EOF") {
		return fmt.Errorf("%w during the key exchange", ErrLost)
	}
	return err
}

// sources describes where the keys came from.
func (a *Auth) sources() string {
	var from []string
	if n := len(a.signers); n > 0 {
		from = append(from, fmt.Sprintf("%d of files", n))
	}
	if a.AgentSocket != "" {
		from = append(from, "those of the SSH agent")
	}
	return cmp.Or(strings.Join(from, " and "), "none")
}
