package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/test/harness"
)

// shop is a web server whose files can be had in halves first.
type shop struct {
	*httptest.Server
	files map[string][]byte

	mu     sync.Mutex
	broken map[string]bool // the next answer breaks off in the middle
	gone   bool            // nothing is there
	asked  map[string]int
}

func newShop(t *testing.T, files map[string][]byte) *shop {
	t.Helper()
	s := &shop{files: files, broken: map[string]bool{}, asked: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		body, ok := s.files[r.URL.Path]
		half := s.broken[r.URL.Path]
		s.broken[r.URL.Path] = false
		s.asked[r.URL.Path]++
		ok = ok && !s.gone
		s.mu.Unlock()
		switch {
		case !ok:
			http.NotFound(w, r)
		case half:
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body[:len(body)/2])
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			panic(http.ErrAbortHandler)
		default:
			http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(body))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// packed is a tar.gz archive of a program, and on request of links out of its folder.
func packed(t *testing.T, program string, evil bool) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := errors.Join(w.WriteHeader(&tar.Header{Name: "kit/bin/hello", Mode: 0o700, Size: int64(len(program))}))
	if err == nil {
		_, err = w.Write([]byte(program))
	}
	if evil {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "../../evil", Mode: 0o700}))
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Programs and images get artifacts. The agent resumes a broken download, unpacks archives and fetches an artifact once
// for a node. The artifact stays usable after the agent was killed and the address is gone. An artifact with another
// checksum is refused with both sums.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		const said = "the artifact speaks"
		tool := []byte("#!/bin/sh\necho " + said + "\n" + strings.Repeat("# and is long\n", 20000))
		kit := packed(t, "#!/bin/sh\necho the kit speaks\n", false)
		evil := packed(t, "", true)
		srv := newShop(t, map[string][]byte{"/tool": tool, "/kit.tar.gz": kit, "/evil.tar.gz": evil})
		srv.broken["/tool"] = true
		s := harness.New(t, executor)
		s.Server()
		agent := s.Agent("--image-high", "100", "--egress-allow", "127.0.0.1") // however full the disk is
		run := func(name, artifacts, script string) string {
			return s.Write(name+".yaml", fmt.Sprintf(`
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    image: %[2]s
    command: [sh, -c, %[3]q]
    resources: {cpu: 10m, memory: 16MiB}
    artifacts:
%[4]s
---
kind: Job
name: %[1]s
steps: [{name: all, definition: %[1]s}]
`, name, harness.Image, script, artifacts))
		}
		shared := fmt.Sprintf(`      - {source: "%[1]s/tool?key=Hush7", checksum: %[2]q, path: /opt/berth-test/tool, mode: "0755"}
      - {source: "%[1]s/kit.tar.gz", checksum: %[3]q, path: /opt/berth-test/kit, unpack: true}`, srv.URL, checksum(tool), checksum(kit))
		script := `/opt/berth-test/tool && /opt/berth-test/kit/kit/bin/hello && ! (echo x >>/opt/berth-test/tool) 2>/dev/null && ! touch /opt/berth-test/kit/x 2>/dev/null && echo all well`
		// 1. A broken answer is gone on from, and all is there, read-only.
		s.Berth("run", run("first", shared, script)).Want(t, 0, "succeeded")
		s.Prints(said+"\nthe kit speaks\nall well", "logs", "first.1.all.0")
		if tools, kits := srv.requests("/tool"), srv.requests("/kit.tar.gz"); tools != 2 || kits != 1 {
			t.Errorf("the tool was requested %d times and the kit %d times, want 2 and 1", tools, kits)
		}
		// 2. The message about a wrong checksum has both sums, and the address without its key.
		wrong := "sha256:" + strings.Repeat("ab", 32)
		bad := fmt.Sprintf(`      - {source: "%s/tool?key=Hush7", checksum: %q, path: /opt/berth-test/tool}`, srv.URL,
			wrong)
		s.Berth("run", "--detach", run("wrong", bad, "echo it runs")).Want(t, 0)
		s.Prints("artifact "+srv.URL+"/tool?…: its checksum is "+checksum(tool)+", and the manifest wants "+wrong,
			"events", "--tail", "-1")
		s.Prints(wrong, "status", "job/wrong")
		for _, args := range [][]string{{"events", "--tail", "-1"}, {"explain", "wrong.1.all.0"}, {"status"}} {
			if r := s.Berth(args...); r.Code != 0 || strings.Contains(r.Stdout+r.Stderr, "Hush7") ||
				strings.Contains(r.Stdout, "task.running wrong") {
				t.Errorf("berth %v: %v", args, r)
			}
		}
		// 3. An archive that attacks is refused, and leaves nothing.
		bad = fmt.Sprintf(`      - {source: "%s/evil.tar.gz", checksum: %q, path: /opt/berth-test/kit, unpack: true}`,
			srv.URL, checksum(evil))
		s.Berth("run", "--detach", run("evil", bad, "echo it runs")).Want(t, 0)
		s.Prints("../../evil", "status", "job/evil")
		// … and nothing is requested where a cloud serves the machine's credentials.
		bad = fmt.Sprintf(`      - {source: "http://169.254.169.254/latest", checksum: %q, path: /opt/berth-test/tool}`,
			wrong)
		s.Berth("run", "--detach", run("cloud", bad, "echo it runs")).Want(t, 0)
		s.Prints("169.254.169.254 (link-local", "status", "job/cloud")
		for _, name := range []string{"job/evil", "job/wrong", "job/cloud"} {
			s.Berth("delete", name).Want(t, 0)
		}
		// 4. The next agent has the complete artifact, although the server no longer has it.
		agent.Kill()
		srv.mu.Lock()
		srv.gone = true
		srv.mu.Unlock()
		s.Agent("--image-high", "100", "--egress-allow", "127.0.0.1")
		s.Berth("run", run("second", shared, script)).Want(t, 0, "succeeded")
		s.Prints("all well", "logs", "second.1.all.0")
		// A part of an artifact that came while its job was deleted may stay in the folder "coming" for a day.
		artifacts := filepath.Join(s.AgentDir, "agent", "artifacts")
		kept, err := filepath.Glob(filepath.Join(artifacts, "kept", "*"))
		if err != nil || len(kept) != 2 {
			t.Errorf("the node keeps %v, %v; want the two that are right", kept, err)
		}
		for _, outside := range []string{filepath.Join(artifacts, "evil"), filepath.Join(artifacts, "..", "evil")} {
			if _, err := os.Lstat(outside); !os.IsNotExist(err) {
				t.Errorf("the archive wrote outside of its folder: %s: %v", outside, err)
			}
		}
	})
}

// An operator denies users an address. The agent fetches no artifact from it, and the job's status says why and who
// decided so. An agent without the denial runs the same job.
func TestArtifactFromADeniedAddress(t *testing.T) {
	t.Parallel()
	tool := []byte("#!/bin/sh\necho the tool speaks\n")
	srv := newShop(t, map[string][]byte{"/tool": tool})
	s := harness.New(t, harness.Process)
	s.Server()
	agent := s.Agent("--egress-allow", "127.0.0.0/8", "--egress-deny", "127.0.0.1,192.0.2.0/24")
	job := func(name string) string {
		return s.Write(name+".yaml", fmt.Sprintf(`
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    command: [tools/tool]
    resources: {cpu: 10m, memory: 16MiB}
    artifacts:
      - {source: "%[2]s/tool", checksum: %[3]q, path: tools/tool, mode: "0755"}
---
kind: Job
name: %[1]s
steps: [{name: all, definition: %[1]s}]
`, name, srv.URL, checksum(tool)))
	}
	s.Berth("run", "--detach", job("denied")).Want(t, 0)
	s.Prints("127.0.0.1 is denied by the operator", "status", "job/denied")
	host := strings.TrimPrefix(srv.URL, "http://")
	s.Prints("artifact "+srv.URL+"/tool: it cannot be fetched: "+host+": the address may not be reached", "events",
		"--tail", "-1")
	if n := srv.requests("/tool"); n != 0 {
		t.Errorf("the denied address was asked %d times", n)
	}
	s.Berth("delete", "job/denied").Want(t, 0)
	agent.Stop()
	s.Agent("--egress-allow", "127.0.0.0/8")
	s.Berth("run", job("allowed")).Want(t, 0, "succeeded")
	s.Prints("the tool speaks", "logs", "allowed.1.all.0")
}

// Without an image, a program finds its own copies in its working directory, under its own user. The program itself may
// be such a copy.
func TestArtifactsOfAProgram(t *testing.T) {
	t.Parallel()
	tool := []byte("#!/bin/sh\necho more >>kit/kit/bin/hello && kit/kit/bin/hello && stat -c '%u %a' tools/tool\n")
	kit := packed(t, "#!/bin/sh\necho the kit speaks\n: ", false)
	srv := newShop(t, map[string][]byte{"/tool": tool, "/kit.tar.gz": kit})
	s := harness.New(t, harness.Process)
	s.Dev()
	user, owner := "", strconv.Itoa(os.Geteuid())
	if os.Geteuid() == 0 {
		user, owner = "\n    user: \"65534:65534\"", "65534"
	}
	s.Berth("run", s.Write("own.yaml", fmt.Sprintf(`
kind: TaskDefinition
name: own
version: 1
containers:
  - name: main
    command: [tools/tool]%[4]s
    resources: {cpu: 10m, memory: 16MiB}
    artifacts:
      - {source: "%[1]s/tool", checksum: %[2]q, path: tools/tool, mode: "0755"}
      - {source: "%[1]s/kit.tar.gz", checksum: %[3]q, path: kit, unpack: true}
---
kind: Job
name: own
steps: [{name: all, definition: own, count: 2}]
`, srv.URL, checksum(tool), checksum(kit), user))).Want(t, 0, "succeeded")
	for i := range 2 {
		s.Prints("the kit speaks\n"+owner+" 755\n", "logs", fmt.Sprintf("own.1.all.%d", i))
	}
	if n := srv.requests("/kit.tar.gz"); n != 1 {
		t.Errorf("the kit was requested %d times, want once for both", n)
	}
}
