package artifact

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/plain"
)

// Limits of one request.
const (
	maxRedirects  = 5
	maxRetryAfter = 2 * time.Minute // the longest Retry-After that is honoured
)

// fetcher sends requests to servers.
type fetcher struct{ client *http.Client }

func newFetcher(stall time.Duration, policy egress.Policy) fetcher {
	transport := policy.Transport(min(stall, 30*time.Second))
	transport.DisableCompression, transport.ResponseHeaderTimeout = true, stall
	return fetcher{&http.Client{
		Transport: transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case isObject(via[0]):
				return http.ErrUseLastResponse // a signature is for one address
			case len(via) > maxRedirects:
				return fmt.Errorf("%w: more than %d redirects", errPermanent, maxRedirects)
			case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
				return fmt.Errorf("%w: https redirects to %s", errPermanent, cluster.ShownSource(r.URL.String()))
			case r.URL.Scheme != "https" && r.URL.Scheme != "http":
				return fmt.Errorf("%w: it redirects to %s", errPermanent, cluster.ShownSource(r.URL.String()))
			}
			r.Header.Del("Referer") // it contains the query, which may be secret
			return nil
		},
	}}
}

// errPermanent means that another attempt cannot succeed.
var errPermanent = errors.New("it cannot be fetched")

// later is a temporary failure, with the server's Retry-After.
type later struct {
	err   error
	after time.Duration
}

func (l later) Error() string { return l.err.Error() }
func (l later) Unwrap() error { return l.err }

// fetch fetches an artifact's source into a file, resumes from its content, and verifies the checksum.
func (s *Store) fetch(ctx context.Context, a *cluster.Artifact, part string, m *making) error {
	shown := cluster.ShownSource(a.Source)
	for failures := 0; ; {
		before := sizeOf(part)
		m.setText("fetching " + shown)
		err := s.try(ctx, a, part, m)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var soon later
		if !errors.As(err, &soon) {
			return err
		}
		if failures++; sizeOf(part) > before {
			failures = 1
		}
		if failures >= s.Tries {
			return fmt.Errorf("%w; gave up after %d tries", err, failures)
		}
		wait := max(s.backoff(failures-1), min(soon.after, maxRetryAfter))
		m.setText(fmt.Sprintf("fetching %s: %v; next try in %s", shown, err,
			cluster.Duration(wait.Round(time.Millisecond))))
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// backoff returns the wait after a number of consecutive failures.
func (s *Store) backoff(failures int) time.Duration {
	return pause.Jitter(pause.Doubled(s.First, s.Longest, failures), rand.Float64)
}

// try sends one request for the missing part.
func (s *Store) try(ctx context.Context, a *cluster.Artifact, part string, m *making) error {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) { // an earlier run died after it had set the mode
		err = os.Remove(part)
		if err == nil {
			f, err = os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("write it: %w", err)
	}
	defer f.Close()
	sum := sumOf(a.Checksum)
	have, err := io.Copy(sum, f)
	if err != nil {
		return fmt.Errorf("read the part that was fetched: %w", err)
	}
	if have > 0 && match(sum, a.Checksum) { // complete before its agent died
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := s.open(ctx, a.Source, have)
	if err != nil {
		return err
	}
	defer from.Close()
	resumed := from.offset > 0
	if resumed {
		m.setText("fetching " + cluster.ShownSource(a.Source) + ": resuming at " + cluster.Bytes(have).String())
	} else {
		have, sum = 0, sumOf(a.Checksum)
		if err = f.Truncate(0); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("write it: %w", err)
		}
	}
	total := int64(-1)
	if from.left >= 0 {
		total = have + from.left
	}
	if total > int64(s.MaxFetched) {
		return fmt.Errorf("%w: it has %s, more than %s", errPermanent, cluster.Bytes(total), s.MaxFetched)
	}
	if free := s.free(); from.left > int64(free) {
		return later{err: fmt.Errorf("%s are left to fetch, and the disk of %s has %s free",
			cluster.Bytes(from.left), s.Dir, free)}
	}
	got, err := s.read(cancel, from, io.MultiWriter(f, sum), func(n int64) {
		text := cluster.Bytes(have + n).String()
		if total >= 0 {
			text += " of " + cluster.Bytes(total).String()
		}
		m.setText("fetching " + cluster.ShownSource(a.Source) + ": " + text)
	}, int64(s.MaxFetched)-have)
	switch {
	case err != nil:
		return err
	case total >= 0 && have+got < total:
		return later{err: fmt.Errorf("the server closed the connection after %s of %s", cluster.Bytes(have+got),
			cluster.Bytes(total))}
	case match(sum, a.Checksum):
		return nil
	}
	wrong := wrongChecksum("its checksum is", hex.EncodeToString(sum.Sum(nil)), a.Checksum)
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write it: %w", err)
	}
	if resumed || total < 0 { // perhaps parts of two files, or an incomplete one
		return later{err: wrong}
	}
	return wrong
}

// wrongChecksum returns the error for content with another checksum. What names the checksum in the sentence.
func wrongChecksum(what, digits, want string) error {
	algorithm, _, _ := strings.Cut(want, ":")
	return fmt.Errorf("%s %s:%s, and the manifest wants %s: the content differs; "+
		"correct the checksum or the source in the manifest", what, algorithm, digits, want)
}

// source is an opened source of an artifact.
type source struct {
	io.ReadCloser
	offset int64 // where it begins
	left   int64 // how many bytes follow, -1 if that is not known
}

// open opens a source at an offset, or at its begin if it cannot begin elsewhere.
func (s *Store) open(ctx context.Context, address string, offset int64) (source, error) {
	if path := cluster.HostFile(address); path != "" {
		return openFile(path, s.Paths)
	}
	resp, err := s.ask(ctx, address, offset) //nolint:bodyclose // the source closes it
	if err != nil {
		return source{}, err
	}
	if resp.StatusCode != http.StatusPartialContent {
		offset = 0
	}
	return source{resp.Body, offset, resp.ContentLength}, nil
}

// ask requests the bytes from have on and checks the answer.
func (s *Store) ask(ctx context.Context, source string, have int64) (*http.Response, error) {
	req, err := s.request(ctx, source, have)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "berth")
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := s.fetcher.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the outer error contains the address with its query
		}
		if errors.Is(err, errPermanent) {
			return nil, err
		}
		if errors.Is(err, egress.ErrRefused) {
			return nil, fmt.Errorf("%w: %w", errPermanent, err)
		}
		return nil, later{err: errors.New(plain.Text(err))}
	}
	code := resp.StatusCode
	switch {
	case code == http.StatusOK && resp.Header.Get("Content-Encoding") != "" &&
		resp.Header.Get("Content-Encoding") != "identity":
		err = fmt.Errorf("%w: the server encodes it as %q", errPermanent, resp.Header.Get("Content-Encoding"))
	case code == http.StatusOK:
		return resp, nil
	case code == http.StatusPartialContent && have > 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(have, 10)+"-"):
		return resp, nil
	case have > 0 && (code == http.StatusPartialContent || code == http.StatusRequestedRangeNotSatisfiable):
		_ = resp.Body.Close() // the body is not needed
		return s.ask(ctx, source, 0)
	case isObject(req):
		err = objectFault(resp)
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		err = later{fmt.Errorf("the server answers %s", resp.Status), retryAfter(resp.Header.Get("Retry-After"))}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		err = fmt.Errorf("%w: the server answers %s: artifacts are fetched without a login, so it must be "+
			"readable without one, or by an address that holds its own key", errPermanent, resp.Status)
	default:
		err = fmt.Errorf("%w: the server answers %s", errPermanent, resp.Status)
	}
	_ = resp.Body.Close() // the body is not needed
	return nil, err
}

// request returns the request for the bytes of a source from have on.
func (s *Store) request(ctx context.Context, source string, have int64) (*http.Request, error) {
	ranges := ""
	if have > 0 {
		ranges = "bytes=" + strconv.FormatInt(have, 10) + "-"
	}
	if bucket, key, ok := cluster.Object(source); ok {
		return s.ObjectStore.request(ctx, bucket, key, ranges)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: its address is not a URL", errPermanent)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	return req, nil
}

func retryAfter(text string) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 0
}

// read copies a body, reports its progress, and cancels it when it stalls.
func (s *Store) read(cancel func(), body io.Reader, to io.Writer, seen func(int64), most int64) (got int64, err error) {
	stalled := time.AfterFunc(s.Stall, cancel)
	defer stalled.Stop()
	buf := make([]byte, 256<<10)
	next := time.Now().Add(s.OnProgress)
	for {
		n, err := body.Read(buf)
		stalled.Reset(s.Stall)
		if got += int64(n); got > most {
			return got, fmt.Errorf("%w: it has more than %s", errPermanent, s.MaxFetched)
		}
		if _, failed := to.Write(buf[:n]); failed != nil {
			if errors.Is(failed, syscall.ENOSPC) {
				return got, later{err: fmt.Errorf("write it: %w", failed)}
			}
			return got, fmt.Errorf("write it: %w", failed)
		}
		switch {
		case errors.Is(err, io.EOF):
			return got, nil
		case errors.Is(err, context.Canceled): // the caller checks ctx; otherwise it was the stall
			return got, later{err: fmt.Errorf("the server sent nothing for %s", cluster.Duration(s.Stall))}
		case errors.Is(err, io.ErrUnexpectedEOF):
			return got, later{err: errors.New("the server closed the connection before the end")}
		case err != nil:
			return got, later{err: errors.New("read it: " + plain.Text(err))}
		}
		if time.Now().After(next) {
			next = time.Now().Add(s.OnProgress)
			seen(got)
		}
	}
}

func sumOf(checksum string) hash.Hash {
	if strings.HasPrefix(checksum, "sha512:") {
		return sha512.New()
	}
	return sha256.New()
}

func match(sum hash.Hash, checksum string) bool {
	_, want, _ := strings.Cut(checksum, ":")
	return hex.EncodeToString(sum.Sum(nil)) == want
}

func modeOf(a *cluster.Artifact) os.FileMode {
	mode, err := strconv.ParseUint(a.Mode, 8, 9)
	if err != nil {
		return 0o644
	}
	return os.FileMode(mode)
}
