package pki

import (
	"errors"
	"fmt"
	"strings"
)

// JoinToken authorizes a machine to join: "<id>.<secret>.<hash>". The hash is the fingerprint of the authority, by
// which the machine recognizes the right server on the first contact.
type JoinToken struct{ ID, Secret, CAHash string }

// String returns the token in the form that ParseJoinToken reads. It holds the secret.
func (t JoinToken) String() string { return t.ID + "." + t.Secret + "." + t.CAHash }

// ErrJoinToken says that a text is not a join token. The error never holds the text.
var ErrJoinToken = errors.New(
	"this is not a join token: want <id>.<secret>.<hash>, as `berth token create --join` prints it")

// Lengths of the parts of tokens, in characters.
const (
	maxTokenID  = 64
	minSecret   = 16
	maxSecret   = 128
	lengthOfSum = 64
)

// ParseJoinToken reads a token; white space around it does not matter. An error wraps ErrJoinToken.
func ParseJoinToken(s string) (JoinToken, error) {
	parts := strings.Split(strings.TrimSpace(s), ".")
	if len(parts) != 3 {
		return JoinToken{}, ErrJoinToken
	}
	t := JoinToken{parts[0], parts[1], parts[2]}
	switch {
	case !word(t.ID, 1, maxTokenID):
		return JoinToken{}, fmt.Errorf("its id is malformed: %w", ErrJoinToken)
	case !word(t.Secret, minSecret, maxSecret):
		return JoinToken{}, fmt.Errorf("its secret is malformed: %w", ErrJoinToken)
	case len(t.CAHash) != lengthOfSum || strings.Trim(t.CAHash, "0123456789abcdef") != "":
		return JoinToken{}, fmt.Errorf("its hash is not a SHA-256 in hex: %w", ErrJoinToken)
	}
	return t, nil
}

// CheckCA returns an error unless a certificate is that of the token's authority. A joining machine checks the server's
// answer with it.
func (t JoinToken) CheckCA(caPEM []byte) error {
	got, err := Fingerprint(caPEM)
	if err != nil {
		return err
	}
	if got != t.CAHash {
		return fmt.Errorf("the server's authority has the fingerprint %s, and the token names %s: this is "+
			"another control plane", got, t.CAHash)
	}
	return nil
}

// word reports whether s is of a–z, A–Z, 0–9, "-" and "_", with a length in the bounds.
func word(s string, least, most int) bool {
	if len(s) < least || len(s) > most {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
