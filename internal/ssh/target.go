package ssh

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// DefaultPort is the port of SSH.
const DefaultPort = 22

// ParseTarget reads "[USER@]HOST[:PORT]"; an IPv6 address with a port has brackets. Without a user it is the given one.
func ParseTarget(text, user string) (t Target, err error) {
	t = Target{User: user, Port: DefaultPort}
	host := text
	if name, rest, ok := cutLast(text, "@"); ok {
		t.User, host = name, rest
	}
	t.Host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if h, port, err := net.SplitHostPort(host); err == nil {
		t.Host = h
		if t.Port, err = strconv.Atoi(port); err != nil || t.Port < 1 || t.Port > 65535 {
			return t, fmt.Errorf("%q has no port from 1 to 65535", text)
		}
	} else if strings.Contains(t.Host, ":") && net.ParseIP(t.Host) == nil {
		return t, fmt.Errorf("%q is not an address: want HOST, HOST:PORT or [IPV6]:PORT", text)
	}
	if t.User == "" || strings.ContainsAny(t.User, " \t/:") {
		return t, fmt.Errorf("%q has no user before \"@\"", text)
	}
	if t.Host == "" || strings.HasPrefix(t.Host, "-") || strings.ContainsAny(t.Host, " \t/=@") {
		return t, fmt.Errorf("%q has no host: want [USER@]HOST[:PORT]", text)
	}
	return t, nil
}

// cutLast cuts a text around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return "", s, false
}
