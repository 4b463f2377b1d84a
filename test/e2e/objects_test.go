package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// objectStore is a real object store on loopback, with the key of its administrator.
type objectStore struct {
	t       *testing.T
	address string
	folder  string
	key     aws.Credentials
	region  string
}

// newObjectStore starts an object store that keeps its data in a folder of the test.
func newObjectStore(t *testing.T, region string) *objectStore {
	t.Helper()
	program := testkit.NeedServer(t, "objectstore")
	o := &objectStore{
		t: t, address: testkit.FreeAddress(t), folder: t.TempDir(), region: region,
		key: aws.Credentials{AccessKeyID: "administrator", SecretAccessKey: "Hush-administrator"},
	}
	log, err := os.Create(filepath.Join(o.folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	run := exec.CommandContext(context.WithoutCancel(t.Context()), program, o.address, region, o.folder)
	run.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+o.key.AccessKeyID,
		"ROOT_SECRET_ACCESS_KEY="+o.key.SecretAccessKey)
	run.Stdout, run.Stderr = log, log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill() // it may have ended
		_ = run.Wait()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the object store printed:\n%s", said)
		}
	})
	testkit.Eventually(t, soon, func() error {
		resp, err := http.Get("http://" + o.address + "/health")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	return o
}

// addUser adds a user who may do nothing yet.
func (o *objectStore) addUser(key aws.Credentials) {
	o.t.Helper()
	o.send(http.MethodPatch, "/create-user", "<Account><Access>"+key.AccessKeyID+"</Access><Secret>"+
		key.SecretAccessKey+"</Secret><Role>user</Role></Account>")
}

// addBucket adds a bucket with a policy, unless that is empty.
func (o *objectStore) addBucket(name, policy string) {
	o.t.Helper()
	o.send(http.MethodPut, "/"+name, "")
	if policy != "" {
		o.send(http.MethodPut, "/"+name+"?policy=", policy)
	}
}

// addObject adds an object: the store keeps each in a file.
func (o *objectStore) addObject(bucket, key string, content []byte) {
	o.t.Helper()
	path := filepath.Join(o.folder, "data", bucket, key)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// send sends a request of the administrator. Its path has nothing to escape.
func (o *objectStore) send(method, path, body string) {
	o.t.Helper()
	ctx := o.t.Context()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+o.address+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	digits := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", digits)
	if err := v4.NewSigner().SignHTTP(ctx, o.key, req, digits, "s3", o.region, time.Now()); err != nil {
		o.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	said, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode/100 != 2 {
		o.t.Fatalf("%s %s: %s: %s, %v", method, path, resp.Status, said, err)
	}
}

// brokenOnce forwards connections to an address, and closes the first one after some bytes of the answer. It returns
// its own address, and a function that reports how many connections there were.
func brokenOnce(t *testing.T, to string, limit int64) (address string, connections func() int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		count int
	)
	all.Go(func() {
		for first := true; ; first = false {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			count++
			mu.Unlock()
			all.Go(func() {
				defer from.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				all.Go(func() {
					_, _ = io.Copy(server, from) // the end of either is that of both
					_ = server.Close()
				})
				if first {
					_, _ = io.CopyN(from, server, limit)
					return
				}
				_, _ = io.Copy(from, server)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return listener.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// Tasks get objects of a real object store. The agent has the key of a user who may read one bucket. A read that breaks
// off is resumed, and the checksum decides. The reason for an object that cannot be read names the object and the
// answer, and no message or log has a secret.
func TestObjectsOfAnObjectStore(t *testing.T) {
	t.Parallel()
	const region, secret, wrong = "eu-west-1", "Hush/reader+7", "Hush/wrong+7"
	reader := aws.Credentials{AccessKeyID: "reader", SecretAccessKey: secret}
	store := newObjectStore(t, region)
	store.addUser(reader)
	const tool = "tools/über tool+(1).sh"
	program := []byte("#!/bin/sh\necho the object speaks\nexit 0\n" + strings.Repeat("# and is long\n", 40000))
	store.addBucket("private", "")
	store.addBucket("releases", `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
		"Principal": {"AWS": ["reader"]}, "Action": ["s3:GetObject", "s3:ListBucket"],
		"Resource": ["arn:aws:s3:::releases", "arn:aws:s3:::releases/*"]}]}`)
	store.addObject("private", tool, program)
	store.addObject("releases", tool, program)

	s := harness.New(t, harness.Process)
	s.Server()
	key := filepath.Join(s.Dir, "key")
	useKey := func(secret string) {
		t.Helper()
		s.Write("key", "[default]\naws_access_key_id = reader\naws_secret_access_key = "+secret+"\n")
	}
	useKey(secret)
	address, connections := brokenOnce(t, store.address, 256<<10)
	flags := func(region string) []string {
		return []string{
			"--image-high", "100", "--egress-allow", "127.0.0.1", "--object-store", "http://" + address,
			"--object-store-region", region, "--object-store-key-file", key,
		}
	}
	agent := s.Agent(flags(region)...)
	job := func(name, source, sum string) string {
		return s.Write(name+".yaml", fmt.Sprintf(`
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    command: [tools/tool]
    resources: {cpu: 10m, memory: 16MiB}
    artifacts:
      - {source: %[2]q, checksum: %[3]q, path: tools/tool, mode: "0755"}
---
kind: Job
name: %[1]s
steps: [{name: all, definition: %[1]s}]
`, name, source, sum))
	}

	// 1. The object is read with the right key, over a connection that breaks once.
	const source = "s3://releases/" + tool
	s.Berth("run", job("right", source, checksum(program))).Want(t, 0, "succeeded")
	s.Prints("the object speaks", "logs", "right.1.all.0")
	if n := connections(); n != 2 {
		t.Errorf("the agent connected %d times, want 2: once again for the rest", n)
	}

	// 2. The reason for what cannot be read names the source and the answer.
	refused := func(name, source, want string) {
		t.Helper()
		s.Berth("run", "--detach", job(name, source, "sha256:"+strings.Repeat("ab", 32))).Want(t, 0)
		s.Prints("artifact "+source+": "+want, "status", "job/"+name)
		s.Berth("delete", "job/"+name).Want(t, 0)
	}
	const cannot = "it cannot be fetched: the object store answers "
	refused("missing", "s3://releases/none", cannot+"404 Not Found (NoSuchKey)")
	refused("nobucket", "s3://nowhere/none", cannot+"404 Not Found (NoSuchBucket)")
	refused("private", "s3://private/"+tool, cannot+"403 Forbidden (AccessDenied): the key in the file of "+
		"--object-store-key-file must be valid and may read the object")
	refused("other", source, "its checksum is "+checksum(program)+", and the manifest wants sha256:abab")

	// 3. Another key needs no restart. Of a wrong one nothing is shown.
	useKey(wrong)
	refused("wrongkey", source, cannot+"403 Forbidden (SignatureDoesNotMatch): the key in the file of "+
		"--object-store-key-file must be valid")
	useKey(secret)
	second := []byte("#!/bin/sh\necho the second object speaks\n")
	store.addObject("releases", "second", second)
	s.Berth("run", job("again", "s3://releases/second", checksum(second))).Want(t, 0, "succeeded")
	s.Prints("the second object speaks", "logs", "again.1.all.0")

	// 4. A region that is not the store's is named as such.
	agent.Stop()
	elsewhere := s.Agent(flags("us-west-2")...)
	refused("elsewhere", "s3://releases/second", cannot+"400 Bad Request (AuthorizationHeaderMalformed): the bucket is "+
		"elsewhere; --object-store and --object-store-region of the agent must name its address and its region")

	shown := s.Berth("events", "--tail", "-1")
	shown.Want(t, 0)
	for what, text := range map[string]string{
		"the events": shown.Stdout + shown.Stderr, "the first agent": agent.Output(),
		"the second agent": elsewhere.Output(),
	} {
		if strings.Contains(text, "Hush") {
			t.Errorf("%s show a secret:\n%s", what, text)
		}
	}
}
