package ssh

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// HostKeys says which keys machines may have. It is safe for concurrent use.
type HostKeys struct {
	// Files are known_hosts files, in the format of sshd(8). Missing files are empty.
	Files []string
	// Pinned, unless empty, are the fingerprints of the accepted keys, such as "SHA256:…". The files do not count then.
	Pinned []string
	// AcceptNew accepts the key of a machine that no file knows, and adds it to the first file.
	AcceptNew bool

	mu sync.Mutex // guards the files
}

// HostKeyError means that the key of a machine is unknown, or another one than expected.
type HostKeyError struct {
	Target      Target
	Fingerprint string
	Kind        string // of the key, such as ssh-ed25519
	// Known are the places that expect another key; without one the machine is unknown.
	Known []string
	// Pinned says that the fingerprint is none of the pinned ones.
	Pinned bool
}

// Error says what is wrong and how to go on.
func (e *HostKeyError) Error() string {
	key := fmt.Sprintf("the key of %s is %s (%s)", e.Target.Host, e.Fingerprint, e.Kind)
	switch {
	case e.Pinned:
		return key + ", which is not the key of --host-key"
	case len(e.Known) > 0:
		return key + ", and another one is in " + strings.Join(e.Known, " and ") +
			": somebody may listen in. If the machine was installed again, remove that line first"
	}
	return key + ", which no known_hosts file has: compare it with the machine's (ssh-keygen -lf " +
		"/etc/ssh/ssh_host_" + e.fileKind() + "_key.pub), then use --host-key " + e.Fingerprint +
		" or --accept-new-host-keys"
}

// fileKind is the kind of the key in the names of sshd's files.
func (e *HostKeyError) fileKind() string {
	for _, kind := range []string{"ecdsa", "rsa"} {
		if strings.Contains(e.Kind, kind) {
			return kind
		}
	}
	return "ed25519"
}

// DefaultKnownHosts returns the files of the user and of the machine, that of the user first.
func DefaultKnownHosts(home string) []string {
	return []string{filepath.Join(home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"}
}

// read returns a function that compares a key with the files.
func (k *HostKeys) read() (ssh.HostKeyCallback, error) {
	files := slices.DeleteFunc(slices.Clone(k.Files), func(f string) bool {
		_, err := os.Stat(f)
		return errors.Is(err, os.ErrNotExist)
	})
	return knownhosts.New(files...)
}

// check returns the function that accepts the key of a machine or returns a HostKeyError.
func (k *HostKeys) check(t Target) ssh.HostKeyCallback {
	return func(address string, remote net.Addr, key ssh.PublicKey) error {
		fault := &HostKeyError{Target: t, Fingerprint: ssh.FingerprintSHA256(key), Kind: key.Type()}
		if len(k.Pinned) > 0 {
			if slices.Contains(k.Pinned, fault.Fingerprint) {
				return nil
			}
			fault.Pinned = true
			return fault
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		known, err := k.read()
		if err != nil {
			return fmt.Errorf("read the known hosts: %w", err)
		}
		err = known(address, remote, key)
		wrong, ok := errors.AsType[*knownhosts.KeyError](err)
		if !ok {
			return err
		}
		for _, w := range wrong.Want {
			fault.Known = append(fault.Known, fmt.Sprintf("%s:%d", w.Filename, w.Line))
		}
		if len(fault.Known) > 0 || !k.AcceptNew {
			return fault
		}
		return k.add(t, key)
	}
}

// add writes the key of a machine to the first file. The caller holds k.mu.
func (k *HostKeys) add(t Target, key ssh.PublicKey) (err error) {
	if len(k.Files) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("add the key of %s to the known hosts: %w", t.Host, err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(k.Files[0]), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(k.Files[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(knownhosts.Line([]string{knownhosts.Normalize(t.address())}, key) + "\n")
	return errors.Join(err, f.Close())
}

// keyKinds returns the kinds of keys, each with its algorithms, in the order in which machines are asked for them.
func keyKinds() [][]string {
	return [][]string{
		{ssh.KeyAlgoED25519},
		{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
		{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
	}
}

// offers returns the algorithms of keys that a machine is asked for, as alternatives that are tried in order. A machine
// has keys of several kinds, and shows the one of the first algorithm that it has: it may be another one than a file
// has or than is pinned. The kind of a pinned key is unknown.
func (k *HostKeys) offers(t Target) [][]string {
	if len(k.Pinned) > 0 {
		return keyKinds()
	}
	if known := k.known(t); len(known) > 0 {
		return [][]string{known}
	}
	certificates := slices.DeleteFunc(ssh.SupportedAlgorithms().HostKeys, func(name string) bool {
		return !strings.Contains(name, "-cert-")
	})
	return [][]string{slices.Concat(certificates, slices.Concat(keyKinds()...))}
}

// hasOtherKeys reports whether a machine may have the wanted key nevertheless, of another kind.
func hasOtherKeys(err error) bool {
	wrong, ok := errors.AsType[*HostKeyError](err)
	if ok {
		return wrong.Pinned
	}
	lacks, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err)
	return ok && lacks.What == "host key"
}

// known returns the algorithms of the keys that the files have of a machine.
func (k *HostKeys) known(t Target) (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, err := k.read()
	if err != nil {
		return nil // check reports it
	}
	// no file has this key, so the error lists those that the files have
	err = known(t.address(), &net.TCPAddr{IP: net.IPv4zero}, absentKey{})
	wrong, ok := errors.AsType[*knownhosts.KeyError](err)
	if !ok {
		return nil
	}
	for _, w := range wrong.Want {
		if w.Key.Type() == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		names = append(names, w.Key.Type())
	}
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names)
}

// absentKey is a key that no machine has.
type absentKey struct{}

// Type is part of ssh.PublicKey.
func (absentKey) Type() string { return "none" }

// Marshal is part of ssh.PublicKey.
func (absentKey) Marshal() []byte { return nil }

// Verify is part of ssh.PublicKey.
func (absentKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
