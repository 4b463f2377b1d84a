package contexts

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// devName is the name of the context of a `berth dev`; a further one that runs at the same time gets "dev-2".
const devName = "dev"

// SetDev adds the context of a `berth dev` with this data directory and address. It replaces the context of an earlier
// one with the data directory, or of one that no longer runs, and never that of another one. The context becomes the
// current one if there is none. SetDev returns its name, and the name of the current context.
func SetDev(ctx context.Context, path, dataDir, address string) (name, current string, err error) {
	err = Update(path, func(f *File) error {
		i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Dev == dataDir })
		if i >= 0 {
			name = f.Contexts[i].Name
		} else {
			name = freeDevName(ctx, f)
		}
		before, _ := f.Find(name) // keeps the cluster that the user chose
		f.Set(Context{Name: name, Addresses: []string{address}, Dev: dataDir, Cluster: before.Cluster})
		if _, ok := f.Find(f.Current); !ok {
			f.Current = name
		}
		current = f.Current
		return nil
	})
	return name, current, err
}

// freeDevName returns the first of "dev", "dev-2" and so on that no context has, or only that of an ended `berth dev`.
func freeDevName(ctx context.Context, f *File) string {
	for n := 1; ; n++ {
		name := devName
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		if c, taken := f.Find(name); !taken || c.Dev != "" && !answers(ctx, c) {
			return name
		}
	}
}

// answers reports whether something accepts connections at the socket of a context.
func answers(ctx context.Context, c Context) bool {
	for _, address := range c.Addresses {
		socket, ok := strings.CutPrefix(address, "unix://")
		if !ok {
			return true
		}
		d := net.Dialer{Timeout: time.Second}
		conn, err := d.DialContext(ctx, "unix", socket)
		if err == nil {
			_ = conn.Close() // it was only opened
			return true
		}
	}
	return false
}

// RemoveDev removes the context of a `berth dev` with this data directory, unless another one has the name meanwhile.
func RemoveDev(path, name, dataDir string) error {
	return Update(path, func(f *File) error {
		if c, ok := f.Find(name); ok && c.Dev == dataDir {
			f.Remove(name)
		}
		return nil
	})
}
