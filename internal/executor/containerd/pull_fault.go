package containerd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	registryerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd/registry"
)

// pullFault is the meaning of an error of a pull.
type pullFault struct {
	cause      string
	retryable  bool          // it may work later
	suspend    bool          // no request goes to the registry meanwhile
	retryAfter time.Duration // the wait that the registry requested
	corrupt    bool          // what came is not what its digest says
	daemon     error         // containerd's own, not the registry's
	login      bool          // another login may do
}

// err returns the fault as an error of the operation doing.
func (t *pullFault) err(doing string) error {
	if t.login {
		return loginError(doing + ": " + t.cause)
	}
	return errors.New(doing + ": " + t.cause)
}

// loginError is an executor.ErrLogin with its own words.
type loginError string

// Error returns the words.
func (e loginError) Error() string { return string(e) }

// Is makes it an executor.ErrLogin.
func (loginError) Is(target error) bool { return target == executor.ErrLogin }

// classify classifies an error. Errors contain the addresses of requests, which may hold secrets, so their text is used
// only if it is known to be safe.
func (p *pull) classify(err error) pullFault {
	var busy *registry.BusyError
	var stall *registry.StallError
	var status registryerrors.ErrUnexpectedStatus
	var untrusted *tls.CertificateVerificationError
	text := err.Error()
	from := "registry " + p.host
	switch {
	case errors.As(err, &busy):
		cause := from + " answered " + busy.Status
		if busy.After > 0 {
			cause += fmt.Sprintf(" and wants to be asked again after %v", busy.After)
		}
		return pullFault{cause: cause, retryable: true, suspend: true, retryAfter: busy.After}
	case errors.As(err, &stall):
		return pullFault{cause: fmt.Sprintf("%s sent nothing for %v", from, stall.After), retryable: true}
	case errors.Is(err, docker.ErrInvalidAuthorization),
		errors.As(err, &status) && status.StatusCode == http.StatusUnauthorized:
		return pullFault{cause: p.refused(from), login: true}
	case errors.As(err, &status) && status.StatusCode == http.StatusForbidden:
		return pullFault{cause: from + " does not give this node the image: it answered 403 Forbidden" + p.asUser()}
	case errors.As(err, &status) && status.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return pullFault{
			cause: from + " does not continue in the middle of a layer (it answered 416)", retryable: true,
			corrupt: true,
		}
	case errors.As(err, &status):
		return pullFault{
			cause: from + " answered " + status.Status,
			retryable: status.StatusCode >= http.StatusInternalServerError ||
				status.StatusCode == http.StatusRequestTimeout,
		}
	case strings.Contains(text, "no match for platform"):
		return pullFault{cause: from + " has the image for other kinds of machines only"}
	case strings.Contains(text, "unexpected commit digest"), strings.Contains(text, "unexpected commit size"),
		strings.Contains(text, "expected size"):
		return pullFault{cause: from + " sent other bytes than their digest says", retryable: true, corrupt: true}
	case strings.Contains(text, "no space left on device"):
		return pullFault{cause: "the disk of the node is full"}
	case errors.As(err, &untrusted):
		return pullFault{cause: from + " is not trusted by this node: its certificate: " + untrusted.Err.Error()}
	case registry.IsUnreachable(err):
		return pullFault{
			cause: from + " cannot be reached: " + registry.DescribeNetworkError(err), retryable: true, suspend: true,
		}
	case isA(err, errdefs.IsUnavailable):
		return pullFault{daemon: err}
	case isA(err, errdefs.IsNotFound):
		return pullFault{cause: from + " does not have it"}
	case registry.IsConnectionError(err):
		return pullFault{cause: from + " broke off: " + registry.DescribeNetworkError(err), retryable: true}
	case strings.Contains(text, "failed to authorize"), strings.Contains(text, "authorization"):
		return pullFault{cause: p.refused(from), login: true}
	}
	return pullFault{cause: withoutQueries(text)}
}

func (p *pull) refused(from string) string {
	if p.user == "" {
		return from + " wants a login (401 Unauthorized), and there is none for it"
	}
	return from + " does not accept the login of user " + p.user + " (401 Unauthorized): it is wrong or has expired"
}

func (p *pull) asUser() string {
	if p.user == "" {
		return " to one without a login"
	}
	return " to user " + p.user
}

var queries = regexp.MustCompile(`\?[^\s"']+`)

// withoutQueries cuts what follows a question mark in addresses.
func withoutQueries(text string) string { return queries.ReplaceAllString(text, "?…") }
