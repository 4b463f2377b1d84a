package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/version"
)

// defaultAddr is where a server is looked for when nothing says otherwise.
const defaultAddr = "http://127.0.0.1:7373"

// systemSocket is the socket of the machine's own server.
const systemSocket = "/run/berth/api.sock"

// connect returns a client of the server that the flags and the environment name.
func (a *app) connect() (*client.Client, error) {
	addr := a.findAddr()
	token, err := a.findToken(addr)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Addr: addr, Token: token, Agent: "berth/" + version.String()})
	if err != nil {
		return nil, &usageError{"berth", err.Error()}
	}
	return c, nil
}

// findAddr returns the server's address, in the order that the help of berth tells.
func (a *app) findAddr() string {
	switch {
	case a.addr != "":
		return a.addr
	case a.env("BERTH_ADDR") != "":
		return a.env("BERTH_ADDR")
	}
	if dir := a.env("XDG_RUNTIME_DIR"); dir != "" {
		if path := filepath.Join(dir, "berth", "api.sock"); isSocket(path) {
			return "unix://" + path
		}
	}
	if addr := a.readConfig("addr"); addr != "" {
		return addr
	}
	if isSocket(systemSocket) {
		return "unix://" + systemSocket
	}
	return defaultAddr
}

// findToken returns the token for an address. The token file of this user's own server is for this
// machine only.
func (a *app) findToken(addr string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme == "unix" {
		return "", nil //nolint:nilerr // the client says what is wrong with the address
	}
	if token := a.env("BERTH_TOKEN"); token != "" {
		return token, nil
	}
	if file := a.env("BERTH_TOKEN_FILE"); file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read BERTH_TOKEN_FILE: %w", err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", nil
	}
	return a.readConfig("token"), nil
}

// configFile returns the path of one of this user's files for berth: "addr", the address of the server that
// `berth dev` runs, or "token", what it takes. The folder may not exist.
func configFile(name string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	return filepath.Join(dir, "berth", name), nil
}

// readConfig returns the text of a file of configFile, or "" if there is none.
func (a *app) readConfig(name string) string {
	path, err := configFile(name)
	if err != nil {
		return ""
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.tell("berth: warning: %v", err)
		}
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}
