package secrets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// secretContainer returns a container that gets secrets in each way.
func secretContainer() *cluster.Container {
	return &cluster.Container{Name: "app", Secrets: []cluster.SecretUse{
		{Secret: "password", File: "/run/app/password", Mode: "0400"},
		{Secret: "token", Env: "TOKEN"},
		{Secret: "cert", File: "/run/app/cert", Mode: "0400"},
	}}
}

// withSecrets gives an attempt the secrets of secretContainer.
func withSecrets(t *testing.T) (*Task, func(password, token, cert string)) {
	t.Helper()
	memory := &Memory{dir: t.TempDir()}
	folder := secretFolder{filepath.Join(memory.dir, "u1", "app"), secretContainer()}
	give := func(password, token, cert string) {
		t.Helper()
		reply := transport.SecretsReply{Secrets: map[string]transport.SecretText{
			"password": {Stamp: "1", Value: []byte(password)}, "token": {Stamp: "1", Value: []byte(token)},
			"cert": {Stamp: "1", Value: []byte(cert)},
		}}
		if err := folder.write(reply); err != nil {
			t.Fatal(err)
		}
		if err := folder.stamp(reply); err != nil {
			t.Fatal(err)
		}
	}
	return (&Provider{Memory: memory}).ForTask(attempt.ID{UUID: "u1"}, nil, nil), give
}

// TestMask masks values in output: whole values, with and without their end of line, the lines of long values, the
// longest first, and parts cut at either end of the text. No other word is masked.
func TestMask(t *testing.T) {
	t.Parallel()
	task, give := withSecrets(t)
	give("Hush-password\n", "Hush-password-and-token", "-----BEGIN-----\nHushLineOfACertificate\nshort line\n")
	for said, want := range map[string]string{
		"":                                     "",
		"nothing of it, and Hush alone":        "nothing of it, and Hush alone",
		"login with Hush-password failed":      "login with [secret] failed",
		"twice: Hush-password, Hush-password.": "twice: [secret], [secret].",
		"Hush-password-and-token":              "[secret]",
		"TOKEN=Hush-password-and-token\n":      "TOKEN=[secret]\n",
		"a line: HushLineOfACertificate":       "a line: [secret]",
		"a short line stays":                   "a short line stays",
		"OfACertificate, cut before":           "[secret], cut before",
		"cut after: HushLineOfACer":            "cut after: [secret]",
		"cut after: Hush-passw":                "cut after: [secret]",
	} {
		if got := task.MaskText(said); got != want {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
	// The end of an output is read with enough additional bytes that no value is cut at its beginning.
	asked := 0
	if got := task.Mask(func(more int) string {
		asked = more
		return "x"
	}); got != "x" || asked < len("Hush-password-and-token") {
		t.Errorf("%d bytes more were requested, and the text is %q", asked, got)
	}
	// Three bytes are too short to distinguish a secret from other words.
	give("abc", "Hush-password-and-token", "abcd")
	if got := task.MaskText("abc, abcde"); got != "abc, [secret]e" {
		t.Errorf("short ones: got %q", got)
	}
}

// TestMaskFormerValues rotates secrets. Output with former values is masked, too. Former values go with the attempt's
// folder and are limited in number.
func TestMaskFormerValues(t *testing.T) {
	t.Parallel()
	task, give := withSecrets(t)
	for i := range maxFormerFiles + 5 {
		give(fmt.Sprintf("Hush-password-%02d", i), fmt.Sprintf("Hush-token-%02d", i), "Hush-cert")
		// The same again, as after a crash.
		give(fmt.Sprintf("Hush-password-%02d", i), fmt.Sprintf("Hush-token-%02d", i), "Hush-cert")
	}
	last := maxFormerFiles + 4
	said := fmt.Sprintf("%02d: Hush-password-%02d Hush-token-%02d, then Hush-password-%02d Hush-token-%02d Hush-cert.",
		last, last-1, last-1, last, last)
	if got, want := task.MaskText(said), fmt.Sprintf("%02d: [secret] [secret], then [secret] [secret] [secret].",
		last); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	dir := filepath.Join(task.Memory.of("u1"), "app", executor.FormerFolder)
	if kept, err := os.ReadDir(dir); err != nil || len(kept) != maxFormerFiles {
		t.Errorf("%d former values are kept, error %v", len(kept), err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of former values: %v, error %v", info.Mode(), err)
	}
}

// TestSecretsThatCannotBeVariables rejects values that no environment can contain, and quotes none of them.
func TestSecretsThatCannotBeVariables(t *testing.T) {
	t.Parallel()
	folder := secretFolder{filepath.Join(t.TempDir(), "app"), secretContainer()}
	for name, token := range map[string]string{
		"a zero byte": "Hush\x00value",
		"too long":    "Hush" + strings.Repeat("x", cluster.MaxArg),
	} {
		err := folder.write(transport.SecretsReply{Secrets: map[string]transport.SecretText{
			"password": {Value: []byte("p")}, "cert": {Value: []byte("c")}, "token": {Value: []byte(token)},
		}})
		if err == nil || !strings.Contains(err.Error(), "the secret token cannot be the variable TOKEN") ||
			strings.Contains(err.Error(), "Hush") {
			t.Errorf("%s: got error %.200v", name, err)
		}
	}
	err := folder.write(transport.SecretsReply{
		Missing: []string{"there is no secret cert"},
		Secrets: map[string]transport.SecretText{"password": {Value: []byte("p")}},
	})
	if err == nil || !strings.Contains(err.Error(), "no secret cert") || folder.placed() != nil {
		t.Errorf("one is missing: got error %v, and %v are there", err, folder.placed())
	}
}
