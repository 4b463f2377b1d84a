// Package plain replaces the error texts of the operating system and of libraries by plain words for people. "dial tcp
// 10.0.0.1:80: connect: connection refused" becomes "nothing listens at 10.0.0.1:80 (connection refused)".
//
// Code that creates an error wraps its cause unchanged. Code that shows an error to a person, or writes it into a
// record, calls Text.
//
// # Where errors are translated
//
// About nine hundred places wrap errors that are not Berth's own. They wrap the cause unchanged, so that errors.Is and
// the logs see it. The translation happens where an error is reported: in the command line at its one exit, and in the
// agent where an error becomes a record's message or the end of a stream. The runtime of containerd returns errors as
// text, so its driver translates them on arrival.
//
// Advice for each kind of error is in internal/cli; an error with its own hint has precedence. Package api/client does
// not translate, because programs need the errors of Go's own packages. Tests find new commands, flags and routes by
// themselves. They check that a wrong flag is reported with the accepted values, and that a route answers nonsense with
// 4xx, a sentence and the place. If a library changes the text of an error, Text returns the library's text.
package plain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// Text returns the text of an error, "" for nil. It replaces the text of known wrapped errors by plain words and keeps
// the rest.
func Text(err error) string {
	if err == nil {
		return ""
	}
	if text, ok := known(err); ok {
		return text
	}
	text := err.Error()
	for _, cause := range causes(err) {
		if cause == nil {
			continue
		}
		old := cause.Error()
		if said := Text(cause); said != old && old != "" {
			text = replaceLast(text, old, said)
		}
	}
	return overTheWire.ReplaceAllString(noHTTP.ReplaceAllString(text, "the program at this address does not "+
		"speak HTTP"), "")
}

// noHTTP matches the error of net/http about a response in another protocol.
var noHTTP = regexp.MustCompile(
	`(net/http: HTTP/1.x transport connection broken: )?malformed HTTP (response|status code|version) ".*"`)

// overTheWire matches gRPC's prefix of the other side's error.
var overTheWire = regexp.MustCompile(
	`rpc error: code = \w+ desc = (connection error: desc = )?|net/http: HTTP/1.x transport connection broken: |transport: Error while dialing: `)

// causes returns what an error wraps.
func causes(err error) []error {
	switch e := err.(type) { //nolint:errorlint // the tree is walked here
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// replaceLast replaces the last occurrence, because a cause is at the end of the error that wraps it.
func replaceLast(text, old, by string) string {
	i := strings.LastIndex(text, old)
	if i < 0 {
		return text
	}
	return text[:i] + by + text[i+len(old):]
}

// known returns what an error itself, without those that wrap it, is called here.
func known(err error) (string, bool) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by Text
	case *fs.PathError:
		return e.Path + ": " + Text(e.Err), true
	case *os.LinkError:
		return fmt.Sprintf("%s to %s: %s", e.Old, e.New, Text(e.Err)), true
	case *url.Error:
		return Text(e.Err), true
	case *net.OpError:
		return connection(e), true
	case *net.DNSError:
		return lookup(e), true
	case *os.SyscallError:
		if said, ok := system(e.Err, "there", e.Syscall); ok {
			return said, true
		}
		return e.Error(), true
	case *json.SyntaxError:
		if e.Error() == "unexpected end of JSON input" {
			return "it is truncated", true
		}
		return fmt.Sprintf("it is not JSON (%s)", e.Error()), true
	}
	switch err { //nolint:errorlint // the tree is walked by Text
	case context.DeadlineExceeded:
		return "it took too long", true
	case context.Canceled:
		return "it was interrupted", true
	case io.EOF, io.ErrUnexpectedEOF:
		return "it ended too early", true
	}
	return "", false
}

// connection describes the error of a connection, or of an address to listen on.
func connection(e *net.OpError) string {
	at := "the address"
	if e.Addr != nil {
		at = e.Addr.String()
	}
	if dns, ok := errors.AsType[*net.DNSError](e.Err); ok {
		return lookup(dns)
	}
	if said, ok := system(e.Err, at, e.Op); ok {
		return said
	}
	if e.Timeout() {
		return at + " does not answer"
	}
	return at + ": " + Text(e.Err)
}

// system describes an error number for an address and an operation: a system call, or "listen" and "dial" of package
// net.
func system(err error, at, what string) (string, bool) {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return "", false
	}
	where := "at " + at
	if at == "there" {
		where = at
	}
	switch number {
	case syscall.ECONNREFUSED:
		return "nothing listens " + where + " (connection refused)", true
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return "the connection was cut by the other side (" + number.Error() + ")", true
	case syscall.EADDRINUSE:
		return "another program listens " + where + " (address already in use)", true
	case syscall.EADDRNOTAVAIL:
		return strings.TrimPrefix(where, "at ") + " is not an address of this machine", true
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return "no route leads " + strings.Replace(where, "at ", "to ", 1) + " (" + number.Error() + ")", true
	case syscall.ETIMEDOUT:
		return strings.TrimPrefix(where, "at ") + " does not answer", true
	case syscall.ENOENT:
		if what == "connect" || what == "dial" {
			return "the socket does not exist", true
		}
	case syscall.EACCES, syscall.EPERM:
		if what == "bind" || what == "listen" {
			return "this user lacks the permission to listen " + where + " (" + number.Error() + ")", true
		}
	}
	return "", false
}

// lookup says why a name has no address.
func lookup(e *net.DNSError) string {
	switch {
	case e.IsNotFound:
		return fmt.Sprintf("the name %s is not known (no such host)", e.Name)
	case e.IsTimeout:
		return fmt.Sprintf("the name %s could not be looked up: the resolver does not answer", e.Name)
	case e.Name == "":
		return e.Err
	}
	return fmt.Sprintf("the name %s could not be looked up: %s", e.Name, e.Err)
}
