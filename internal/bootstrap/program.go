package bootstrap

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/ssh"
)

// Program is the binary for one architecture. It is safe for concurrent use.
type Program struct {
	Path string // on this machine
	sum  string

	mu     sync.Mutex
	packed []byte // the whole program, compressed; nil until it is needed
}

// OpenProgram returns the program in a file.
func OpenProgram(path string) (*Program, error) {
	sum, err := setup.Checksum(path)
	if err != nil {
		return nil, fmt.Errorf("read the program to install: %w", err)
	}
	return &Program{Path: path, sum: sum}, nil
}

// Version is the shortened checksum that names the program on machines.
func (p *Program) Version() string { return p.sum[:16] }

// from returns the compressed program without its first bytes.
func (p *Program) from(offset int64) ([]byte, error) {
	if offset > 0 {
		return p.compress(offset)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.packed == nil {
		packed, err := p.compress(0)
		if err != nil {
			return nil, err
		}
		p.packed = packed
	}
	return p.packed, nil
}

func (p *Program) compress(offset int64) ([]byte, error) {
	content, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, err
	}
	if offset > int64(len(content)) {
		return nil, fmt.Errorf("%s has changed since it was read", p.Path)
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content[offset:]); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// cacheFolder is where the user's copy is, below the home folder. Other users cannot write there.
const cacheFolder = ".cache/berth-setup"

// copyScript compares the program on the machine with a checksum. It begins each script of the copy.
const copyScript = `for p in sha256sum gzip; do command -v $p >/dev/null || { echo "$p is missing" >&2; exit 1; }; done
is() { test -e "$1" && test "$(sha256sum <"$1" | cut -d " " -f 1)" = "$sum"; }
`

// findScript prints where the program is. If it is nowhere, it prepares a copy and prints how much of it is there.
const findScript = copyScript + `if is "$installed"; then echo "berth-copy installed"
elif is "$copy"; then echo "berth-copy copied"
else umask 077 && mkdir -p "$folder" && chmod 700 "$folder" && touch "$copy.part" &&
	echo "berth-copy part $(wc -c <"$copy.part")"
fi`

// unpackScript adds its input to the copy. A copy that is whole gets its name, and a damaged one is deleted.
const unpackScript = copyScript + `gzip -dc >>"$copy.part" || exit
if is "$copy.part"; then chmod 700 "$copy.part" && mv "$copy.part" "$copy" && echo "berth-copy copied"
else rm -f "$copy.part"; echo "berth-copy damaged"
fi`

// copy makes the program be on the machine: the installed one, if it is the same, or a copy in the user's folder. A
// part that an interrupted copy left is continued.
func (a *addition) copy(ctx context.Context) (string, error) {
	if a.ProfileOnly { // any version will do
		is, err := a.copyCommand(ctx, "test ! -e "+setup.BinaryLink+" || echo berth-copy installed", nil)
		if err != nil || is == "installed" {
			a.path = setup.BinaryLink
			return "is installed", err
		}
	}
	if !strings.HasPrefix(a.home, "/") {
		return "", errors.New("the user has no home folder to copy the program to")
	}
	folder := a.home + "/" + cacheFolder
	installed := setup.VersionsDir + "/" + a.program.Version() + "/berth"
	a.path = folder + "/berth-" + a.program.Version()
	variables := fmt.Sprintf("sum=%s installed=%s folder=%s copy=%s\n", a.program.sum, installed, ssh.Quote(folder),
		ssh.Quote(a.path))
	is, err := a.copyCommand(ctx, variables+findScript, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("prepare the copy of the program: %w", err)
	case is == "installed":
		a.path = installed
		return "is installed", nil
	case is == "copied":
		return "was copied before", nil
	}
	size, _ := strings.CutPrefix(is, "part ")
	offset, err := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
	if err != nil {
		return "", fmt.Errorf("prepare the copy of the program: the machine says %q", is)
	}
	packed, err := a.program.from(offset)
	if err != nil {
		return "", err
	}
	is, err = a.copyCommand(ctx, variables+unpackScript, bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("copy the program: %w", err)
	}
	if is != "copied" {
		// a part of another try was damaged: the next try begins anew
		return "", fmt.Errorf("%w: the copied program has another checksum", ssh.ErrLost)
	}
	return fmt.Sprintf("%d MB", (len(packed)+1<<20-1)>>20), nil
}

// copyCommand runs a script and returns what it says in the line after the word berth-copy, which no greeting of a
// shell has.
func (a *addition) copyCommand(ctx context.Context, line string, stdin io.Reader) (string, error) {
	var out bytes.Buffer
	err := a.machine.Conn.Run(ctx, ssh.Command{Line: line, Stdin: stdin, Stdout: &out})
	says, _ := strings.CutPrefix(lastLine(out.String()), "berth-copy ")
	return says, err
}

// removeCopy deletes the copies in the user's folder. A failure does no harm.
func (a *addition) removeCopy(ctx context.Context) {
	if a.home == "" {
		return
	}
	_, err := a.machine.Conn.Output(ctx, "rm -rf "+ssh.Quote(a.home+"/"+cacheFolder))
	if err != nil {
		a.Log.Debug("the copy of the program remains", "machine", a.name(), "error", err)
	}
}
