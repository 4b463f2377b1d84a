package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// redis makes an image of Debian's redis-server and exactly the libraries that it is
// linked with, and a copy of both under bin/ that runs as plain files.
func (b builder) redis(ctx context.Context) (map[string]v1.Image, error) {
	root := filepath.Join(b.work, "debian")
	packages, err := b.unpack(ctx, root, "redis-server", "redis-tools")
	if err != nil {
		return nil, err
	}
	server, err := filepath.EvalSymlinks(filepath.Join(root, "usr/bin/redis-server"))
	if err != nil {
		return nil, fmt.Errorf("find redis-server: %w", err)
	}
	t := tree{}
	t.base()
	t["data"] = file{mode: 0o755, folder: true}
	if err := t.addFile("usr/bin/redis-server", server); err != nil {
		return nil, err
	}
	libs, loader, err := libraries(root, server)
	if err != nil {
		return nil, err
	}
	for _, lib := range libs {
		// One folder for all: the loader searches it on every Debian.
		if err := t.addFile("usr/lib/"+filepath.Base(lib.name), lib.path); err != nil {
			return nil, err
		}
	}
	if err := t.addFile(strings.TrimPrefix(loader.name, "/"), loader.path); err != nil {
		return nil, err
	}
	for _, pkg := range packages {
		// The image contains the licences of its files.
		terms := filepath.Join("usr/share/doc", pkg, "copyright")
		if _, err := os.Stat(filepath.Join(root, terms)); err == nil {
			if err := t.addFile(terms, filepath.Join(root, terms)); err != nil {
				return nil, err
			}
		}
	}
	if err := b.plainRedis(t, loader.name); err != nil {
		return nil, err
	}
	image, err := t.image(v1.Config{
		Entrypoint: []string{"/usr/bin/redis-server"},
		WorkingDir: "/data",
		Env:        []string{"LD_LIBRARY_PATH=/usr/lib"},
	})
	if err != nil {
		return nil, err
	}
	return map[string]v1.Image{"berth.local/redis:7": image}, nil
}

// plainRedis writes the tree's program and libraries to bin/redis.d, and beside it a
// script named redis-server that runs them with their own loader.
func (b builder) plainRedis(t tree, loader string) error {
	dir := filepath.Join(b.out, "bin", "redis.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	for name, f := range t {
		if !strings.HasPrefix(name, "usr/lib/") && name != "usr/bin/redis-server" && "/"+name != loader {
			continue
		}
		if err := replace(filepath.Join(dir, filepath.Base(name)), f.data); err != nil {
			return err
		}
	}
	script := "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")/redis.d\n" +
		"exec \"$here/" + filepath.Base(loader) + "\" --library-path \"$here\" \"$here/redis-server\" \"$@\"\n"
	return replace(filepath.Join(b.out, "bin", "redis-server"), []byte(script))
}

// replace replaces a program's file. A process of the old file continues undisturbed.
func replace(name string, data []byte) error {
	if err := os.WriteFile(name+".new", data, 0o755); err != nil {
		return fmt.Errorf("write a program: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("put a program into the folder: %w", err)
	}
	return nil
}

// unpack fetches packages and the libraries that they depend on and unpacks them below
// root, without installing anything. It returns the names of all packages.
func (b builder) unpack(ctx context.Context, root string, names ...string) ([]string, error) {
	args := []string{
		"depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks",
		"--no-replaces", "--no-enhances",
	}
	listing, err := b.output(ctx, b.work, "apt-cache", append(args, names...)...)
	if err != nil {
		return nil, err
	}
	packages := slices.Clone(names)
	for line := range strings.Lines(string(listing)) {
		pkg := strings.TrimSpace(line)
		if strings.HasPrefix(line, "lib") && !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	debs := filepath.Join(b.work, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", debs, err)
	}
	fetch := append([]string{"-qq", "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3", "download"}, packages...)
	if _, err := b.output(ctx, debs, "apt-get", fetch...); err != nil {
		return nil, fmt.Errorf("%w (are the lists of packages there? apt-get update fetches them)", err)
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(errors.New("apt-get fetched nothing"), err)
	}
	for _, deb := range files {
		if _, err := b.output(ctx, b.work, "dpkg-deb", "-x", deb, root); err != nil {
			return nil, err
		}
	}
	return packages, nil
}

// output runs a command and returns its standard output. The error contains its messages.
func (b builder) output(ctx context.Context, dir, command string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(messages.String()))
	}
	return out, nil
}

// library is a shared object: the requested name, and its path.
type library struct{ name, path string }

// libraries returns the direct and indirect libraries of a program, and its loader, all found below root.
func libraries(root, program string) (libs []library, loader library, err error) {
	seen := map[string]bool{}
	todo := []string{program}
	for len(todo) > 0 {
		file, err := elf.Open(todo[0])
		if err != nil {
			return nil, loader, fmt.Errorf("read a program: %w", err)
		}
		needed, err := file.ImportedLibraries()
		if err == nil && loader.name == "" {
			loader, err = loaderOf(root, file)
		}
		_ = file.Close() // only read
		if err != nil {
			return nil, loader, fmt.Errorf("read what %s needs: %w", todo[0], err)
		}
		todo = todo[1:]
		for _, name := range needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			path, err := find(root, name)
			if err != nil {
				return nil, loader, err
			}
			libs, todo = append(libs, library{name, path}), append(todo, path)
		}
	}
	return libs, loader, nil
}

// loaderOf returns the interpreter that a program names.
func loaderOf(root string, file *elf.File) (library, error) {
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return library{}, fmt.Errorf("read the loader's name: %w", err)
		}
		name := strings.TrimRight(string(text), "\x00")
		path, err := find(root, filepath.Base(name))
		return library{name, path}, err
	}
	return library{}, errors.New("not linked dynamically")
}

// find finds a library in the folders of a Debian system.
func find(root, name string) (string, error) {
	for _, pattern := range []string{"lib/*-linux-*", "usr/lib/*-linux-*", "lib64", "lib", "usr/lib"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern, name))
		if err != nil {
			return "", fmt.Errorf("find %s: %w", name, err)
		}
		for _, m := range matches {
			if file, err := filepath.EvalSymlinks(m); err == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("no package holds the library %s", name)
}
