package session

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
)

// ParseHostPort reads "HOST" or "HOST:PORT", an address for other machines. It refuses a scheme, an empty host and the
// address of all interfaces.
func ParseHostPort(text string, port int) (string, error) {
	host, number := text, strconv.Itoa(port)
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, number = h, p
	} else {
		host = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(host)
	n, err := strconv.Atoi(number)
	switch {
	case host == "" || strings.ContainsAny(text, "/ @") || strings.Contains(host, ":") && ip == nil:
		return "", fmt.Errorf("%q: want HOST or HOST:PORT, such as 10.0.0.1 or db1.example:%d", text, port)
	case err != nil || n < 1 || n > 65535:
		return "", fmt.Errorf("%q: want a port between 1 and 65535", text)
	case ip != nil && ip.IsUnspecified():
		return "", fmt.Errorf("%q: want the address at which other machines reach this one, not the address of all "+
			"interfaces",
			text)
	}
	return net.JoinHostPort(host, number), nil
}

// PlainPathError returns the text of a file error without the name of the system call.
func PlainPathError(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return err.Error()
}
