package bootstrap

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
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

// copy makes the program be on the machine: the installed one, if it is the same, or a copy in the user's folder. A
// part that an interrupted copy left is continued.
func (a *addition) copy(ctx context.Context) (string, error) {
	if a.ProfileOnly { // any version will do
		if sum, err := a.remoteSum(ctx, setup.BinaryLink); err != nil || sum != "" {
			a.path = setup.BinaryLink
			return "is installed", err
		}
	}
	installed := setup.VersionsDir + "/" + a.program.Version() + "/berth"
	if sum, err := a.remoteSum(ctx, installed); err != nil {
		return "", err
	} else if sum == a.program.sum {
		a.path = installed
		return "is installed", nil
	}
	if a.home == "" || !strings.HasPrefix(a.home, "/") {
		return "", errors.New("the user has no home folder to copy the program to")
	}
	folder := a.home + "/" + cacheFolder
	a.path = folder + "/berth-" + a.program.Version()
	if sum, err := a.remoteSum(ctx, a.path); err != nil {
		return "", err
	} else if sum == a.program.sum {
		return "was copied before", nil
	}
	part := ssh.Quote(a.path + ".part")
	out, err := a.machine.Conn.Output(ctx, "umask 077 && mkdir -p "+ssh.Quote(folder)+" && chmod 700 "+
		ssh.Quote(folder)+" && touch "+part+" && wc -c <"+part)
	if err != nil {
		return "", fmt.Errorf("prepare the copy of the program: %w", err)
	}
	offset, err := strconv.ParseInt(lastLine(out), 10, 64)
	if err != nil {
		return "", fmt.Errorf("prepare the copy of the program: the machine says %q", out)
	}
	packed, err := a.program.from(offset)
	if err != nil {
		return "", err
	}
	err = a.machine.Conn.Run(ctx, ssh.Command{Line: "gzip -dc >>" + part, Stdin: bytes.NewReader(packed)})
	if err != nil {
		return "", fmt.Errorf("copy the program: %w", err)
	}
	sum, err := a.remoteSum(ctx, a.path+".part")
	if err != nil {
		return "", err
	}
	if sum != a.program.sum {
		_, err := a.machine.Conn.Output(ctx, "rm -f "+part)
		// a part of another try was damaged: the next try begins anew
		return "", errors.Join(fmt.Errorf("%w: the copied program has another checksum", ssh.ErrLost), err)
	}
	_, err = a.machine.Conn.Output(ctx, "chmod 700 "+part+" && mv "+part+" "+ssh.Quote(a.path))
	return fmt.Sprintf("%d MB", (len(packed)+1<<20-1)>>20), err
}

// remoteSum returns the checksum of a file on the machine, or "" for a file that is not there.
func (a *addition) remoteSum(ctx context.Context, path string) (string, error) {
	out, err := a.machine.Conn.Output(ctx, "test ! -e "+ssh.Quote(path)+" || sha256sum "+ssh.Quote(path))
	if _, failed := errors.AsType[*ssh.ExitError](err); failed {
		return "", fmt.Errorf("read %s on the machine: %w", path, err)
	}
	sum, _, _ := strings.Cut(lastLine(out), " ")
	return sum, err
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
