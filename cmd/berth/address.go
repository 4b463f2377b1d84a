package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// The ports of a server that other machines reach.
const (
	portAPI   = 7071 // https: agents, servers, people from elsewhere
	portPeers = 7072 // https: the members of the store among themselves
	portEtcd  = 2379 // of an etcd that runs elsewhere
)

// hostPort reads "HOST" or "HOST:PORT", an address that other machines can reach: no scheme, and neither empty nor
// the address of all interfaces.
func hostPort(text string, port int) (string, error) {
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
		return "", fmt.Errorf("%q: want the address that other machines reach this one at, not that of all interfaces",
			text)
	}
	return net.JoinHostPort(host, number), nil
}

// listenable returns what is wrong with a "HOST:PORT" to listen on, where HOST is an IP address or empty for all
// interfaces.
func listenable(text string) error {
	host, port, err := net.SplitHostPort(text)
	n, bad := strconv.Atoi(port)
	switch {
	case err != nil || bad != nil || n < 0 || n > 65535:
		return fmt.Errorf("%q: want HOST:PORT, such as 0.0.0.0:%d", text, portPeers)
	case host != "" && net.ParseIP(host) == nil:
		return fmt.Errorf("%q: want an IP address of this machine, or none for all", text)
	}
	return nil
}

// splitList splits the values of a flag, each of which may hold several with commas between.
func splitList(values []string) []string {
	var all []string
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// faults collects all that is wrong with a command line, so that it is told at once.
type faults struct{ list []string }

// add notes a fault.
func (f *faults) add(format string, args ...any) {
	f.list = append(f.list, fmt.Sprintf(format, args...))
}

// check notes err, if there is one, as the fault of a flag.
func (f *faults) check(flag string, err error) {
	if err != nil {
		f.add("%s %v", flag, err)
	}
}

// err returns the faults as the error of a command, or nil.
func (f *faults) err(cmd *cobra.Command) error {
	switch len(f.list) {
	case 0:
		return nil
	case 1:
		return &usageError{cmd.CommandPath(), f.list[0]}
	}
	return &usageError{cmd.CommandPath(), count(len(f.list), "fault") + ":\n  " + strings.Join(f.list, "\n  ")}
}
