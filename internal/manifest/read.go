package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Stdin is the file name of standard input.
const Stdin = "-"

// Read reads the objects of files, in the order of the names. A folder means its files that end in .yaml, .yml or
// .json, in the order of their names, without subfolders; "-" means stdin and may occur once. An http or https URL is
// downloaded. An object in two files is a fault. The error is a Faults, or names the file that could not be read.
func Read(stdin io.Reader, names ...string) ([]Object, error) {
	var all reader
	var unreadable []error
	for _, name := range names {
		files, err := expand(name)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		for _, file := range files {
			data, err := load(stdin, file)
			if err != nil {
				unreadable = append(unreadable, err)
				continue
			}
			if file == Stdin {
				file = "<stdin>"
			}
			one := reader{file: file}
			one.read(data)
			all.faults = append(all.faults, one.sorted()...)
			all.objects = append(all.objects, one.objects...)
		}
	}
	all.duplicates(all.objects)
	if len(unreadable) > 0 {
		return nil, errors.Join(append(unreadable, all.faults.err())...)
	}
	if err := all.faults.err(); err != nil {
		return nil, err
	}
	if len(all.objects) == 0 {
		return nil, fmt.Errorf("%s: no object found: want a manifest with at least one of %s",
			strings.Join(names, ", "), kindWords())
	}
	return all.objects, nil
}

// kindWords lists the kinds of objects.
func kindWords() string {
	var words []string
	for _, k := range Kinds() {
		words = append(words, string(k))
	}
	return strings.Join(words, ", ")
}

// expand returns the files of a name: itself, or the files of a folder.
func expand(name string) ([]string, error) {
	switch name {
	case "":
		return nil, errors.New("the name of a manifest is empty: want a file, a folder, a URL or - for standard input")
	case Stdin:
		return []string{name}, nil
	}
	if isURL(name) {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, plainError(name, err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, plainError(name, err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: the folder has no .yaml, .yml or .json file", name)
	}
	return files, nil
}

// fetchTime limits the download of a manifest.
const fetchTime = 30 * time.Second

func isURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

// fetch downloads a manifest, but no more than one byte too many.
func fetch(address string) ([]byte, error) {
	shown := address
	if u, err := url.Parse(address); err == nil {
		shown = u.Redacted()
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	reply, err := http.DefaultClient.Do(ask)
	if err != nil {
		return nil, err // names the address, without a password
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: the server answers %s", shown, reply.Status)
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return data, nil
}

// load reads a file, but no more than one byte too many.
func load(stdin io.Reader, file string) ([]byte, error) {
	if file == Stdin {
		return io.ReadAll(io.LimitReader(stdin, MaxFile+1))
	}
	if isURL(file) {
		return fetch(file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, plainError(file, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, plainError(file, err)
	}
	return data, nil
}

// plainError describes the fault of a file without the name of the system call.
func plainError(file string, err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", file, err)
}
