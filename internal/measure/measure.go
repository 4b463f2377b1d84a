// Package measure asks other systems for numbers: Prometheus servers for the result of a query, any HTTP server for a
// response that a gate evaluates.
//
// Users write the requests and their targets. So a response is read up to MaxBody, and its text is not passed on, but
// for the error of a Prometheus server. No redirect leads to another host, and package egress restricts the addresses.
package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/shorten"
)

// MaxBody is the longest response, in bytes; a longer one is an error.
const MaxBody = 1 << 20

// maxWords limits the quoted part of a server's error, in bytes.
const maxWords = 300

// Config holds the settings of a Reader.
type Config struct {
	// Egress restricts the addresses of requests.
	Egress egress.Policy
	// Client replaces the default client, which obeys Egress, follows no redirect to another host and waits for 10 s.
	Client *http.Client
	// Programs is the number of cached expressions. Default 256.
	Programs int
}

// Reader sends the requests. It may be used concurrently.
type Reader struct {
	client   *http.Client
	programs programs
}

// New returns a reader.
func New(cfg Config) *Reader {
	r := &Reader{client: cfg.Client}
	if r.client == nil {
		r.client = &http.Client{
			Timeout: 10 * time.Second, Transport: cfg.Egress.Transport(5 * time.Second), CheckRedirect: sameHost,
		}
	}
	r.programs.most = cfg.Programs
	if r.programs.most <= 0 {
		r.programs.most = 256
	}
	return r
}

// Close closes idle connections. The reader can be used afterwards.
func (r *Reader) Close() { r.client.CloseIdleConnections() }

// sameHost follows redirects on the host that the user named.
func sameHost(req *http.Request, via []*http.Request) error {
	switch {
	case req.URL.Host != via[0].URL.Host:
		return fmt.Errorf("it redirects to another host, %s", req.URL.Host)
	case len(via) >= 5:
		return errors.New("it redirects again and again")
	}
	return nil
}

// Query returns the one number that a Prometheus server at the base URL returns for a query: a scalar, or a vector of
// one element. No element, several elements, NaN, an infinity, and failed responses are errors that say so, with the
// server's words.
func (r *Reader) Query(ctx context.Context, base, query string) (float64, error) {
	u, err := url.Parse(base)
	if err != nil {
		return 0, errors.New("the address of the Prometheus server cannot be read")
	}
	u = u.JoinPath("api/v1/query")
	values := u.Query()
	values.Set("query", query)
	u.RawQuery = values.Encode()
	status, body, err := r.get(ctx, u)
	if err != nil {
		return 0, err
	}
	v, err := number(status, body)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", u.Host, err)
	}
	return v, nil
}

// get asks and reads the answer.
func (r *Reader) get(ctx context.Context, u *url.URL) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: the address cannot be asked", u.Host)
	}
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	resp, err := r.client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the whole query
		}
		return 0, nil, fmt.Errorf("%s: %w", u.Host, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("%s: read the answer: %w", u.Host, err)
	case len(body) > MaxBody:
		return 0, nil, fmt.Errorf("%s: the answer is longer than %d KiB", u.Host, MaxBody>>10)
	}
	return resp.StatusCode, body, nil
}

// answer is the response of a Prometheus server.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// number finds the number in an answer.
func number(status int, body []byte) (float64, error) {
	var a answer
	read := json.Unmarshal(body, &a)
	switch {
	case read == nil && a.Error != "":
		return 0, fmt.Errorf("status %d, %s: %s", status, words(a.ErrorType), words(a.Error))
	case status != http.StatusOK:
		return 0, fmt.Errorf("status %d %s", status, http.StatusText(status))
	case read != nil || a.Status != "success":
		return 0, errors.New("the answer is not one of a Prometheus server")
	}
	switch a.Data.ResultType {
	case "scalar":
		var s sample
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return 0, errors.New("the answer holds a scalar that cannot be read")
		}
		return s.number()
	case "vector":
		var vector []struct {
			Value *sample `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &vector); err != nil {
			return 0, errors.New("the answer holds a vector that cannot be read")
		}
		switch {
		case len(vector) == 0:
			return 0, errors.New("no data: the query has no answer; is the metric there, and do its labels fit?")
		case len(vector) > 1:
			return 0, fmt.Errorf("the query has %d answers, want one number: put sum(), avg() or max() around it",
				len(vector))
		case vector[0].Value == nil:
			return 0, errors.New("the query answers a histogram, want a number")
		}
		return vector[0].Value.number()
	}
	return 0, fmt.Errorf("the query answers a %s, want one number", words(a.Data.ResultType))
}

// sample is a time and a value, in a list.
type sample [2]json.RawMessage

func (s *sample) number() (float64, error) {
	var text string
	if err := json.Unmarshal(s[1], &text); err != nil {
		return 0, errors.New("the answer holds a value that cannot be read")
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the answer %q is not a number", words(text))
	case math.IsNaN(v):
		return 0, errors.New("the answer is NaN: something was divided by 0, or there is no data")
	case math.IsInf(v, 0):
		return 0, errors.New("the answer is infinite: something was divided by 0")
	}
	return v, nil
}

// words makes text from outside fit for a message.
func words(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, shorten.Marked(s, maxWords))
}
