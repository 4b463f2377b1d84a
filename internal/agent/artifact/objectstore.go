package artifact

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/berthd/berth/internal/privatefile"
)

// DefaultRegion is the region of an object store whose operator names none.
const DefaultRegion = "us-east-1"

// ObjectStore is where the sources that begin with s3:// are read: a server with the protocol of Amazon S3. Requests
// name the bucket in the path, and are signed with Signature Version 4.
type ObjectStore struct {
	// Endpoint is the address of the server, such as "https://s3.example"; "" is no object store.
	Endpoint string
	// Region is part of the signature. Default DefaultRegion.
	Region string
	// Credentials is the path of a file with the operator's key, in the format of the file "credentials" of AWS. It is
	// read for each request, so a key can be replaced at any time. Without a file, requests are not signed.
	Credentials string
}

// Validate returns what is wrong with the settings, with the contents of the file, or nil.
func (o *ObjectStore) Validate() error {
	if *o == (ObjectStore{}) {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%q is not the address of an object store: want one such as https://s3.example or "+
			"http://10.0.0.5:9000, without a path", o.Endpoint)
	}
	_, err = o.key()
	return err
}

// key reads the operator's key. Without a file it is empty.
func (o *ObjectStore) key() (key aws.Credentials, err error) {
	if o.Credentials == "" {
		return key, nil
	}
	text, err := privatefile.Read(o.Credentials)
	if err != nil {
		return key, fmt.Errorf("read the key of the object store: %w", err)
	}
	section := "default"
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSpace(strings.TrimSuffix(name, "]"))
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || section != "default" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "aws_access_key_id":
			key.AccessKeyID = value
		case "aws_secret_access_key":
			key.SecretAccessKey = value
		case "aws_session_token":
			key.SessionToken = value
		}
	}
	if key.AccessKeyID == "" || key.SecretAccessKey == "" {
		return key, fmt.Errorf("%s lacks aws_access_key_id or aws_secret_access_key in the section [default]",
			o.Credentials)
	}
	return key, nil
}

type objectKey struct{}

// isObject reports whether a request is one to the object store.
func isObject(r *http.Request) bool { return r.Context().Value(objectKey{}) != nil }

// emptySum is the SHA-256 of the empty body of a read.
const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// request returns the signed request for an object, from an offset on.
func (o *ObjectStore) request(ctx context.Context, bucket, key, ranges string) (*http.Request, error) {
	if o.Endpoint == "" {
		return nil, fmt.Errorf("%w: the agent of this node has no object store: start it with --object-store",
			errPermanent)
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of the object store is not a URL", errPermanent)
	}
	u.Path, u.RawPath = "/"+bucket+"/"+key, "/"+bucket+"/"+escapeKey(key)
	req, err := http.NewRequestWithContext(context.WithValue(ctx, objectKey{}, true), http.MethodGet, u.String(),
		http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: its address is not a URL", errPermanent)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	credentials, err := o.key()
	if err != nil {
		return nil, later{err: err} // the file may be in the middle of a replacement
	}
	if credentials.AccessKeyID == "" {
		return req, nil
	}
	req.Header.Set("X-Amz-Content-Sha256", emptySum)
	region := o.Region
	if region == "" {
		region = DefaultRegion
	}
	err = v4.NewSigner().SignHTTP(ctx, credentials, req, emptySum, "s3", region, time.Now(),
		func(s *v4.SignerOptions) { s.DisableURIPathEscaping = true })
	if err != nil {
		return nil, fmt.Errorf("%w: sign the request: %w", errPermanent, err)
	}
	return req, nil
}

// escapeKey writes the key of an object as the path of a request. A signature covers the path as it is written: all but
// letters, digits and "-._~/" is escaped.
func escapeKey(key string) string {
	var path strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			path.WriteByte(c)
		default:
			fmt.Fprintf(&path, "%%%02X", c)
		}
	}
	return path.String()
}

// isWord reports whether a code of an error is one that people may see: a short word.
func isWord(code string) bool {
	return code != "" && len(code) <= 64 && !strings.ContainsFunc(code, func(r rune) bool {
		return r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// maxObjectFault limits how much of an error's body is read, in bytes.
const maxObjectFault = 16 << 10

// objectFault returns what the answer of an object store means, apart from a success.
func objectFault(resp *http.Response) error {
	var fault struct {
		Code string
	}
	_ = xml.NewDecoder(io.LimitReader(resp.Body, maxObjectFault)).Decode(&fault) // a proxy answers otherwise
	text := "the object store answers " + resp.Status
	if isWord(fault.Code) {
		text += " (" + fault.Code + ")"
	}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500,
		fault.Code == "RequestTimeout":
		return later{errors.New(text), retryAfter(resp.Header.Get("Retry-After"))}
	case fault.Code == "RequestTimeTooSkewed":
		return fmt.Errorf("%w: %s: set the clock of this node", errPermanent, text)
	case code >= 300 && code < 400, fault.Code == "AuthorizationHeaderMalformed":
		return fmt.Errorf("%w: %s: the bucket is elsewhere; --object-store and --object-store-region of the agent "+
			"must name its address and its region", errPermanent, text)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("%w: %s: the key in the file of --object-store-key-file must be valid and may read the "+
			"object", errPermanent, text)
	}
	return fmt.Errorf("%w: %s", errPermanent, text)
}
