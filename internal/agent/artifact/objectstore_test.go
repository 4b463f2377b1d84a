package artifact_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
)

// signatureOf computes Signature Version 4 of a request without a query and with an empty body, from the description of
// the algorithm. It shares nothing with the signer of the product.
func signatureOf(r *http.Request, path, signed, scope, secret string) string {
	var headers strings.Builder
	for name := range strings.SplitSeq(signed, ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	empty := sha256.Sum256(nil)
	request := strings.Join([]string{r.Method, path, "", headers.String(), signed, hex.EncodeToString(empty[:])}, "\n")
	sum := sha256.Sum256([]byte(request))
	text := strings.Join([]string{
		"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(sum[:]),
	}, "\n")
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope+"/", "/") {
		mac := hmac.New(sha256.New, key)
		if part == "" {
			part = text
		}
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// TestSignatureOfTheTest checks the test's own algorithm with the example of a read in the documentation of Amazon S3.
func TestSignatureOfTheTest(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt", http.NoBody)
	empty := sha256.Sum256(nil)
	r.Header.Set("Range", "bytes=0-9")
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(empty[:]))
	r.Header.Set("X-Amz-Date", "20130524T000000Z")
	got := signatureOf(r, "/test.txt", "host;range;x-amz-content-sha256;x-amz-date",
		"20130524/us-east-1/s3/aws4_request", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	if want := "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// bucket is an object store with one key and some objects, by their paths as they are written in requests. Its turns
// are as those of site.
type bucket struct {
	*httptest.Server
	id, secret, token, region string
	objects                   map[string][]byte

	mu    sync.Mutex
	asked []string // path and range of each request with a valid signature
	turns []func(http.ResponseWriter, *http.Request)
}

func newBucket(t *testing.T, objects map[string][]byte) *bucket {
	t.Helper()
	b := &bucket{id: "AKID", secret: "s/e+c", region: "eu-west-1", objects: objects}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

// fault answers as an object store does.
func fault(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>secret-text</Message></Error>`, code)
}

func (b *bucket) serve(w http.ResponseWriter, r *http.Request) {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if code := b.refusal(r, path); code != "" {
		fault(w, http.StatusForbidden, code)
		return
	}
	b.mu.Lock()
	n := len(b.asked)
	b.asked = append(b.asked, path+" "+r.Header.Get("Range"))
	b.mu.Unlock()
	if n < len(b.turns) {
		b.turns[n](w, r)
		return
	}
	object, ok := b.objects[path]
	if !ok {
		fault(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(object))
}

// refusal returns the code of the error for a request that is not signed as it should, or "".
func (b *bucket) refusal(r *http.Request, path string) string {
	if b.id == "" {
		if r.Header.Get("Authorization") != "" {
			return "AccessDenied"
		}
		return ""
	}
	var credential, signed, signature string
	rest, _ := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			signed = value
		case "Signature":
			signature = value
		}
	}
	id, scope, _ := strings.Cut(credential, "/")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	names := strings.Split(signed, ";")
	switch {
	case err != nil || time.Since(at).Abs() > 15*time.Minute:
		return "RequestTimeTooSkewed"
	case id != b.id:
		return "InvalidAccessKeyId"
	case r.Header.Get("X-Amz-Security-Token") != b.token:
		return "InvalidToken"
	case scope != at.Format("20060102")+"/"+b.region+"/s3/aws4_request":
		return "AuthorizationHeaderMalformed"
	case !slices.Contains(names, "host") || r.Header.Get("Range") != "" && !slices.Contains(names, "range"),
		b.token != "" && !slices.Contains(names, "x-amz-security-token"),
		!hmac.Equal([]byte(signature), []byte(signatureOf(r, path, signed, scope, b.secret))):
		return "SignatureDoesNotMatch"
	}
	return ""
}

// store returns a store of artifacts with the bucket and a file with its key.
func (b *bucket) store(t *testing.T, change ...func(*artifact.Config)) *artifact.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	text := fmt.Sprintf("# of the agent\n[default]\naws_access_key_id = %s\naws_secret_access_key=%s\n", b.id, b.secret)
	if b.token != "" {
		text += "aws_session_token = " + b.token + "\n"
	}
	text += "[other]\naws_access_key_id = other\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return newStore(t, append([]func(*artifact.Config){func(c *artifact.Config) {
		c.ObjectStore = artifact.ObjectStore{Endpoint: b.URL, Region: b.region, Credentials: path}
	}}, change...)...)
}

// TestObjects checks that objects are read with valid signatures, that a broken read is resumed, and that a key file
// with a session and a store without keys work.
func TestObjects(t *testing.T) {
	t.Parallel()
	whole := body(20000)
	const odd = "s3://my.bucket-1/a b/ü+(1)%2F~'*!.tar?x#y"
	paths := map[string][]byte{
		"/my.bucket-1/tool": whole,
		"/my.bucket-1/a%20b/%C3%BC%2B%281%29%252F~%27%2A%21.tar%3Fx%23y": whole,
	}
	for _, test := range []struct {
		name, source string
		change       func(*bucket)
		want         []string
	}{
		{"an object", "s3://my.bucket-1/tool", nil, []string{"/my.bucket-1/tool "}},
		{
			"a key with odd characters", odd, nil,
			[]string{"/my.bucket-1/a%20b/%C3%BC%2B%281%29%252F~%27%2A%21.tar%3Fx%23y "},
		},
		{
			"a session", "s3://my.bucket-1/tool", func(b *bucket) { b.token = "session/token==" },
			[]string{"/my.bucket-1/tool "},
		},
		{
			"a read that breaks, and a busy store", "s3://my.bucket-1/tool", func(b *bucket) {
				b.turns = []func(http.ResponseWriter, *http.Request){
					func(w http.ResponseWriter, _ *http.Request) { fault(w, 503, "SlowDown") },
					half(whole),
				}
			},
			[]string{
				"/my.bucket-1/tool ", "/my.bucket-1/tool ", fmt.Sprintf("/my.bucket-1/tool bytes=%d-", len(whole)/2),
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBucket(t, paths)
			if test.change != nil {
				test.change(b)
			}
			a := &cluster.Artifact{Source: test.source, Checksum: sha256Of(whole)}
			kept, err := b.store(t).Get(t.Context(), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(kept)
			if err != nil || !bytes.Equal(got, whole) {
				t.Errorf("%d bytes, %v; want the object", len(got), err)
			}
			if diff := cmp.Diff(test.want, b.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no key", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t, paths)
		b.id = ""
		s := newStore(t, func(c *artifact.Config) { c.ObjectStore = artifact.ObjectStore{Endpoint: b.URL + "/"} })
		a := &cluster.Artifact{Source: "s3://my.bucket-1/tool", Checksum: sha256Of(whole)}
		if _, err := s.Get(t.Context(), a, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("an image", func(t *testing.T) {
		t.Parallel()
		from := &cluster.ImageSource{Source: "s3://my.bucket-1/tool", Checksum: sha256Of(whole)}
		image, err := newBucket(t, paths).store(t).OpenImage(t.Context(), from, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close()
		if got, err := io.ReadAll(image); err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%d bytes, %v; want the archive", len(got), err)
		}
	})
}

// TestObjectFaults checks what is said about an object that cannot be read: once, without a secret, with a remedy.
func TestObjectFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, source string
		bucket       func(*bucket)
		config       func(*artifact.Config)
		want         string
	}{
		{"no such object", "s3://bucket/none", nil, nil, "the object store answers 404 Not Found (NoSuchKey)"},
		{
			"no object store", "s3://bucket/tool", nil,
			func(c *artifact.Config) { c.ObjectStore = artifact.ObjectStore{} }, "start it with --object-store",
		},
		{"an unknown key", "s3://bucket/tool", func(b *bucket) { b.id = "OTHER" }, nil, "(InvalidAccessKeyId)"},
		{
			"a wrong key", "s3://bucket/tool", func(b *bucket) { b.secret = "other" }, nil,
			"(SignatureDoesNotMatch): the key in the file of --object-store-key-file must be valid",
		},
		{
			"another region", "s3://bucket/tool", func(b *bucket) { b.region = "mars-1" }, nil, "--object-store-region",
		},
		{
			"a redirect", "s3://bucket/tool", func(b *bucket) {
				b.turns = []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
					fault(w, http.StatusTemporaryRedirect, "TemporaryRedirect")
				}}
			}, nil, "307 Temporary Redirect (TemporaryRedirect): the bucket is elsewhere",
		},
		{
			"a code that is none", "s3://bucket/tool", func(b *bucket) {
				b.turns = []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) {
					fault(w, http.StatusBadRequest, "secret-text \x07"+strings.Repeat("x", 100_000))
				}}
			}, nil, "the object store answers 400 Bad Request",
		},
		{
			"a refused address", "s3://bucket/tool", nil, func(c *artifact.Config) { c.Egress = egress.Policy{} },
			"--egress-allow",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBucket(t, map[string][]byte{"/bucket/tool": body(10)})
			change := func(*artifact.Config) {}
			if test.config != nil {
				change = test.config
			}
			s := b.store(t, change)
			if test.bucket != nil {
				test.bucket(b)
			}
			_, err := s.Get(t.Context(), &cluster.Artifact{Source: test.source, Checksum: sha256Of(body(10))}, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if strings.Contains(err.Error(), "secret-text") || len(err.Error()) > 500 || len(b.asked) > 1 {
				t.Errorf("%d requests, and %v", len(b.asked), err)
			}
		})
	}
}

// TestObjectStoreSettings checks what is said about settings that cannot work.
func TestObjectStoreSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := "[default]\naws_access_key_id=a\naws_secret_access_key=b\n"
	for _, test := range []struct {
		name, endpoint, file, want string
	}{
		{"none", "", "", ""},
		{"good", "https://s3.example", write("good", good, 0o600), ""},
		{"no address", "", write("alone", good, 0o600), "is not the address"},
		{"a path", "https://s3.example/bucket", "", "without a path"},
		{"another scheme", "s3://bucket", "", "is not the address"},
		{"a password", "https://user:word@s3.example", "", "is not the address"},
		{"no file", "https://s3.example", filepath.Join(dir, "none"), "no such file"},
		{"a file of all", "https://s3.example", write("all", good, 0o644), "chmod 600"},
		{"half a key", "https://s3.example", write("half", "aws_access_key_id=a\n", 0o600), "lacks aws_access_key_id"},
	} {
		o := artifact.ObjectStore{Endpoint: test.endpoint, Credentials: test.file}
		err := o.Validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
