// Command images builds the images of the examples without any registry:
//
//	go run ./examples/images -out DIR
//
// writes to DIR
//
//	web.tar    berth.local/web:1 and :2, the static program of examples/programs/web
//	work.tar   berth.local/work:1, examples/programs/work
//	redis.tar  berth.local/redis:7, out of Debian's own package files
//	bin/       the same programs as files, for machines without containers
//
// The archives have the form of `docker save`, which containerd imports and `berth image
// load` reads. The same sources and packages give the same bytes. Debian's packages are
// fetched with apt-get; neither root nor an installation is needed, only the package lists.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// archives names what can be built, in order.
func archives() []string { return []string{"web", "work", "redis"} }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "`DIR` to write to; made if missing")
	only := flags.String("only", strings.Join(archives(), ","), "what to build, joined by commas")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if *out == "" || flags.NArg() > 0 {
		return errors.New("want -out DIR and no further argument")
	}
	work, err := os.MkdirTemp("", "berth-images-")
	if err != nil {
		return fmt.Errorf("make a directory to work in: %w", err)
	}
	defer os.RemoveAll(work)
	b := builder{out: *out, work: work, stderr: stderr}
	if err := os.MkdirAll(filepath.Join(*out, "bin"), 0o755); err != nil {
		return fmt.Errorf("make the output directory: %w", err)
	}
	for archive := range strings.SplitSeq(*only, ",") {
		if !slices.Contains(archives(), archive) {
			return fmt.Errorf("%q is not one of %s", archive, strings.Join(archives(), ", "))
		}
		images, err := b.build(ctx, archive)
		if err != nil {
			return fmt.Errorf("build %s: %w", archive, err)
		}
		file := filepath.Join(*out, archive+".tar")
		if err := save(file, images); err != nil {
			return fmt.Errorf("save %s: %w", file, err)
		}
		fmt.Fprintln(stdout, file)
	}
	return nil
}

// builder makes images. out gets their files, work is for intermediate files.
type builder struct {
	out, work string
	stderr    io.Writer
}

func (b builder) build(ctx context.Context, archive string) (map[string]v1.Image, error) {
	switch archive {
	case "web":
		return b.web(ctx)
	case "work":
		return b.program(ctx, "work", "1", nil)
	default:
		return b.redis(ctx)
	}
}

// web is one program in two versions, which differ only in the version that they report.
func (b builder) web(ctx context.Context) (map[string]v1.Image, error) {
	images := map[string]v1.Image{}
	for _, version := range []string{"1", "2"} {
		more, err := b.program(ctx, "web", version, []string{"VERSION=" + version})
		if err != nil {
			return nil, err
		}
		maps.Copy(images, more)
	}
	return images, nil
}

// program compiles a program of examples/programs and makes an image that holds only it.
func (b builder) program(ctx context.Context, prog, version string, env []string) (map[string]v1.Image, error) {
	bin := filepath.Join(b.out, "bin", prog)
	abs, err := filepath.Abs(bin)
	if err != nil {
		return nil, fmt.Errorf("find the output directory: %w", err)
	}
	pkg := "github.com/berthd/berth/examples/programs/" + prog
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o",
		abs, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	cmd.Stdout, cmd.Stderr = b.stderr, b.stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("compile %s: %w", prog, err)
	}
	t := tree{}
	t.base()
	if err := t.addFile("usr/bin/"+prog, bin); err != nil {
		return nil, err
	}
	image, err := t.image(v1.Config{Entrypoint: []string{"/usr/bin/" + prog}, Env: env})
	if err != nil {
		return nil, err
	}
	return map[string]v1.Image{"berth.local/" + prog + ":" + version: image}, nil
}

// save writes images to one archive.
func save(file string, images map[string]v1.Image) error {
	tagged := map[name.Tag]v1.Image{}
	for ref, image := range images {
		tag, err := name.NewTag(ref, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("name the image: %w", err)
		}
		tagged[tag] = image
	}
	if err := tarball.MultiWriteToFile(file, tagged); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}
