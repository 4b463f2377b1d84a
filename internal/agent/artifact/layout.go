package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/berthd/berth/internal/cluster"
)

// maxLayoutIndex limits the file index.json of an image layout.
const maxLayoutIndex = 4 << 20

// OpenImage returns the content of an archive with an image, as a tar file. An archive is fetched and kept like any
// artifact. A source that is a folder of the node is an OCI image layout, and the checksum is that of its file
// index.json, which has the digests of all its parts. Progress and errors are as in Get.
func (s *Store) OpenImage(ctx context.Context, from *cluster.ImageSource, progress func(string)) (io.ReadCloser,
	error,
) {
	if path := cluster.HostFile(from.Source); path != "" {
		root, err := openLayout(path, s.Paths)
		if err != nil {
			return nil, fmt.Errorf("image source %s: %w", from.Source, err)
		}
		if root != nil {
			body, err := packLayout(root, from.Checksum)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("image source %s: %w", from.Source, err), root.Close())
			}
			return body, nil
		}
	}
	kept, err := s.Get(ctx, &cluster.Artifact{Source: from.Source, Checksum: from.Checksum}, progress)
	if err != nil {
		return nil, err
	}
	return os.Open(kept)
}

// openLayout opens a folder of the node. It returns nil if the path is another file.
func openLayout(path string, lent []string) (*os.Root, error) {
	root, name, err := findWithin(path, lent)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	return root.OpenRoot(name)
}

// packLayout returns an image layout as a tar file, once its index has the checksum. Close closes the folder.
func packLayout(root *os.Root, checksum string) (io.ReadCloser, error) {
	f, err := root.Open("index.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the folder has no index.json, so it is no OCI image layout", errPermanent)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPermanent, err)
	}
	defer f.Close()
	index, err := io.ReadAll(io.LimitReader(f, maxLayoutIndex+1))
	if err != nil {
		return nil, fmt.Errorf("%w: read index.json: %w", errPermanent, err)
	}
	if len(index) > maxLayoutIndex {
		return nil, fmt.Errorf("%w: its index.json has more than %s", errPermanent, cluster.Bytes(maxLayoutIndex))
	}
	sum := sumOf(checksum)
	_, _ = sum.Write(index) // it never fails
	if !match(sum, checksum) {
		return nil, wrongChecksum("index.json has the checksum", hex.EncodeToString(sum.Sum(nil)), checksum)
	}
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(writeLayout(writer, root, index)) // nil is the end of the file
	}()
	return &layout{reader, root}, nil
}

// layout is an image layout that is being packed.
type layout struct {
	*io.PipeReader
	root *os.Root
}

// Close ends the packing.
func (l *layout) Close() error {
	return errors.Join(l.PipeReader.Close(), l.root.Close())
}

// writeLayout writes a tar file with an image layout.
func writeLayout(to io.Writer, root *os.Root, index []byte) error {
	w := tar.NewWriter(to)
	add := func(name string, size int64, body io.Reader) error {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.CopyN(w, body, size)
		}
		return err
	}
	marker := []byte(`{"imageLayoutVersion":"1.0.0"}`)
	if err := add("oci-layout", int64(len(marker)), bytes.NewReader(marker)); err != nil {
		return err
	}
	if err := add("index.json", int64(len(index)), bytes.NewReader(index)); err != nil {
		return err
	}
	err := fs.WalkDir(root.FS(), "blobs", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return add(name, info.Size(), f)
	})
	if err != nil {
		return fmt.Errorf("read the image layout: %w", err)
	}
	return w.Close()
}
