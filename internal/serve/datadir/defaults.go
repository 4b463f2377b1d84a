package datadir

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
)

// DefaultHTTP is the default loopback address of the API.
const DefaultHTTP = "127.0.0.1:7373"

// Descriptions of the defaults that are the same on any machine.
const (
	DataDirText = "/var/lib/berth for root, else ~/.local/share/berth"
	SocketText  = "unix:///run/berth/api.sock for root"
	// HostSocketText describes the socket of the API of a node.
	HostSocketText = DefaultHostSocketText + ", or host.sock in the data directory if --data-dir is given"
	// DefaultHostSocketText describes DefaultHostSocket.
	DefaultHostSocketText = "/run/berth-host/host.sock for root"
)

// DefaultDataDir returns the default data directory: that of the machine for root, else that of the user.
func DefaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/berth"
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "berth")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "berth-data"
	}
	return filepath.Join(home, ".local", "share", "berth")
}

// DefaultSocket returns the default unix socket of the API.
func DefaultSocket() string {
	if os.Geteuid() == 0 {
		return "/run/berth/api.sock"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "berth", "api.sock")
	}
	return filepath.Join(DefaultDataDir(), "api.sock")
}

// HostSocketName is the file name of the socket of a node's API.
const HostSocketName = "host.sock"

// DefaultHostSocket returns the default unix socket of the API of a node. Its folder holds nothing else, so that a
// group may be let in.
func DefaultHostSocket() string {
	if os.Geteuid() == 0 {
		return filepath.Join("/run/berth-host", HostSocketName)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "berth", HostSocketName)
	}
	return filepath.Join(DefaultDataDir(), HostSocketName)
}

// HostSocketOf returns the default unix socket of the API of a node with a data directory.
func HostSocketOf(dataDir string) string {
	if dataDir == DefaultDataDir() {
		return DefaultHostSocket()
	}
	return filepath.Join(dataDir, HostSocketName)
}

// NewLogger returns a logger to w with the named level.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log-level %q: want debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
