package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// webTasks and jobTasks are the counts of examples/web.yaml and examples/job.yaml;
// failsFirst is the index of the task that fails on its first attempt.
const (
	webTasks   = 3
	jobTasks   = 8
	failsFirst = 3
)

// verify checks the deployment from the outside, kills one task, and rolls out a new version under load.
func (d *demo) verify(ctx context.Context) error {
	return d.verifyClaims(ctx, []claim{
		{"web", d.verifyWeb},
		{"redis", d.verifyRedis},
		{"names", d.verifyNames},
		{"secret", d.verifySecret},
		{"job", d.verifyJob},
		{"use", d.verifyUse},
		{"why", d.verifyWhy},
		{"kill", d.verifyKill},
		{"rollout", d.verifyRollout},
	})
}

// claim is a statement about Berth. Its function says what it found, or what contradicts the claim.
type claim struct {
	what string
	do   func(context.Context) (string, error)
}

// verifyClaims demands that each claim holds, in their order.
func (d *demo) verifyClaims(ctx context.Context, claims []claim) error {
	for _, c := range claims {
		found, err := c.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		d.print("verified: %s: %s", c.what, found)
	}
	return nil
}

// verifyWeb requests the identity of every task of the web service.
func (d *demo) verifyWeb(ctx context.Context) (string, error) {
	if err := d.webIs(ctx, "1"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d tasks answer, each with its own facts", webTasks), nil
}

// webIs demands exactly the tasks of the web service, all of one version.
func (d *demo) webIs(ctx context.Context, version string) error {
	tasks, err := d.berth.healthyTasks(ctx, "web")
	if err != nil {
		return err
	}
	if len(tasks) != webTasks {
		return fmt.Errorf("%d tasks are healthy, want %d", len(tasks), webTasks)
	}
	for i, t := range tasks {
		got, err := d.askWeb(ctx, t.addr("http"))
		if err != nil {
			return err
		}
		want := webAnswer{
			Version: version, Task: t.ID, Index: strconv.Itoa(i), Count: strconv.Itoa(webTasks),
			Service: "web",
		}
		if got != want {
			return fmt.Errorf("task %s answers %+v, want %+v", t.ID, got, want)
		}
	}
	return nil
}

// webAnswer holds the fields of the web program's /version that the demo reads.
type webAnswer struct {
	Version string `json:"version"`
	Task    string `json:"task"`
	Index   string `json:"index"`
	Count   string `json:"count"`
	Service string `json:"service"`
}

func (d *demo) askWeb(ctx context.Context, addr string) (answer webAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit(5*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/version", http.NoBody)
	if err != nil {
		return answer, fmt.Errorf("ask: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("ask %s: %s", addr, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	return answer, nil
}

// verifyRedis writes a value and reads it again, over two connections.
func (d *demo) verifyRedis(ctx context.Context) (string, error) {
	tasks, err := d.berth.healthyTasks(ctx, "redis")
	if err != nil {
		return "", err
	}
	if len(tasks) != 1 {
		return "", fmt.Errorf("%d tasks are healthy, want 1", len(tasks))
	}
	addr := tasks[0].addr("redis")
	value := "moored at " + time.Now().UTC().Format(time.RFC3339Nano)
	if got, err := d.redis(ctx, addr, d.password, "SET", "berth:demo", value); err != nil || got != "OK" {
		return "", fmt.Errorf("SET at %s answers %q: %w", addr, got, orWrong(err))
	}
	if got, err := d.redis(ctx, addr, d.password, "GET", "berth:demo"); err != nil || got != value {
		return "", fmt.Errorf("GET at %s answers %q, want %q: %w", addr, got, value, orWrong(err))
	}
	return "SET and GET at " + addr, nil
}

var errWrong = errors.New("not what it should be")

func orWrong(err error) error {
	if err == nil {
		return errWrong
	}
	return err
}

// redis sends one command in redis's own protocol, behind the password unless that is empty, and returns its answer, a
// string.
func (d *demo) redis(ctx context.Context, addr, password string, command ...string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(d.limit(5 * time.Second))); err != nil {
		return "", fmt.Errorf("set a deadline: %w", err)
	}
	replies := bufio.NewReader(conn)
	if password != "" {
		if got, err := ask(conn, replies, "AUTH", password); err != nil || got != "OK" {
			return "", fmt.Errorf("the password is answered with %q: %w", got, orWrong(err))
		}
	}
	return ask(conn, replies, command...)
}

// ask sends one command to redis and returns its answer.
func ask(conn io.Writer, replies *bufio.Reader, command ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	return readReply(replies)
}

// verifyNames resolves the name of the web service, like programs on the node's network.
func (d *demo) verifyNames(ctx context.Context) (string, error) {
	const name = "web.default.berth"
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, d.berth.names)
	}}
	err := until(ctx, d.limit(30*time.Second), func() error {
		tasks, err := d.berth.healthyTasks(ctx, "web")
		if err != nil {
			return err
		}
		var want, got []int
		for _, t := range tasks {
			want = append(want, t.Ports["http"])
		}
		_, found, err := resolver.LookupSRV(ctx, "http", "tcp", name)
		if err != nil {
			return fmt.Errorf("request %s: %w", name, err)
		}
		for _, s := range found {
			got = append(got, int(s.Port))
		}
		slices.Sort(want)
		if slices.Sort(got); len(want) != webTasks || !slices.Equal(got, want) {
			return fmt.Errorf("%s leads to the ports %v, want %v", name, got, want)
		}
		return nil
	})
	return fmt.Sprintf("%s leads to all %d tasks", name, webTasks), err
}

// verifySecret demands that redis requires the password, and that no output of Berth contains it.
func (d *demo) verifySecret(ctx context.Context) (string, error) {
	tasks, err := d.berth.healthyTasks(ctx, "redis")
	if err != nil || len(tasks) == 0 {
		return "", fmt.Errorf("no task of redis: %w", orWrong(err))
	}
	if got, err := d.redis(ctx, tasks[0].addr("redis"), "", "GET", "berth:demo"); err == nil ||
		!strings.Contains(err.Error(), "NOAUTH") {
		return "", fmt.Errorf("without the password redis answers %q, %w", got, orWrong(err))
	}
	for _, args := range [][]string{
		{"secret", "ls", "-o", "yaml"},
		{"inspect", "service/redis"},
		{"ps", "-o", "yaml"},
		{"events", "--tail", "-1"},
		{"logs", "service/redis"},
	} {
		out, err := d.berth.read(ctx, args...)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(out), d.password) {
			return "", fmt.Errorf("berth %s prints the password", strings.Join(args, " "))
		}
	}
	return "redis requires its password, and Berth prints it nowhere", nil
}

// verifyUse demands that Berth reports the resource use of each task.
func (d *demo) verifyUse(ctx context.Context) (string, error) {
	var memory int64
	err := until(ctx, d.limit(30*time.Second), func() error {
		out, err := d.berth.read(ctx, "top", "tasks", "-o", "json")
		if err != nil {
			return err
		}
		type row struct {
			ID   string `json:"id"`
			Used struct {
				Memory int64 `json:"memory"`
			} `json:"used"`
		}
		rows, err := items[row](out)
		if err != nil {
			return err
		}
		if memory = 0; len(rows) != webTasks+1 {
			return fmt.Errorf("%d tasks are listed, want %d", len(rows), webTasks+1)
		}
		for _, r := range rows {
			if r.Used.Memory <= 0 {
				return fmt.Errorf("the memory of %s is not known", r.ID)
			}
			memory += r.Used.Memory
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d tasks use %.1f MiB of memory", webTasks+1, float64(memory)/(1<<20)),
		d.berth.show(ctx, "top", "tasks", "--times", "1")
}

// verifyWhy demands an answer to why a task is where it is.
func (d *demo) verifyWhy(ctx context.Context) (string, error) {
	tasks, err := d.berth.healthyTasks(ctx, "web")
	if err != nil || len(tasks) == 0 {
		return "", fmt.Errorf("no task of web: %w", orWrong(err))
	}
	out, err := d.berth.read(ctx, "explain", tasks[0].ID)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(out), "decided ") {
		return "", fmt.Errorf("berth explain %s says %q", tasks[0].ID, out)
	}
	return "berth explain says why " + tasks[0].ID + " is where it is", d.berth.show(ctx, "explain", tasks[0].ID)
}

// maxReply bounds the answers that the demo is ready to read.
const maxReply = 1 << 20

// readReply reads a simple string, an error or a bulk string.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read a reply: %w", err)
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("an empty reply")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+':
		return rest, nil
	case '-':
		return "", fmt.Errorf("redis says %q", rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 || n > maxReply {
			return "", fmt.Errorf("a bulk string of length %q", rest)
		}
		data := make([]byte, n+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return "", fmt.Errorf("read a bulk string: %w", err)
		}
		return string(data[:n]), nil
	default:
		return "", fmt.Errorf("a reply that begins with %q", kind)
	}
}

// verifyJob reads the files of the job's tasks in their volume.
func (d *demo) verifyJob(ctx context.Context) (string, error) {
	out, err := d.berth.read(ctx, "status", "job/squares", "-o", "json")
	if err != nil {
		return "", err
	}
	var job struct {
		Status struct {
			State     string `json:"state"`
			Total     int    `json:"total"`
			Succeeded int    `json:"succeeded"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &job); err != nil {
		return "", fmt.Errorf("read berth status: %w", err)
	}
	if s := job.Status; s.State != "succeeded" || s.Total != jobTasks || s.Succeeded != jobTasks {
		return "", fmt.Errorf("its status is %+v, want %d of %d succeeded", s, jobTasks, jobTasks)
	}
	results, err := d.berth.volumeFile("squares.results")
	if err != nil {
		return "", err
	}
	if err := jobResults(results); err != nil {
		return "", err
	}
	attempts, err := d.berth.volumeFile("squares.attempts")
	if err != nil {
		return "", err
	}
	if err := jobAttempts(attempts); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d results are right, task %d needed a second attempt, no attempt ran twice", jobTasks,
		failsFirst), nil
}

// volumeFile reads a file that a task wrote into its volume, which the agent keeps below
// its data directory.
func (b *berth) volumeFile(name string) (string, error) {
	var found string
	err := filepath.WalkDir(b.dataDir(), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone while we walked
			return nil
		case err == nil && entry.Name() == name:
			found = path
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if found == "" {
		return "", fmt.Errorf("no volume holds %s", name)
	}
	text, err := os.ReadFile(found)
	if err != nil {
		return "", fmt.Errorf("read what the job wrote: %w", err)
	}
	return string(text), nil
}

// jobAttempts demands one line of each attempt that should have run: none ran twice.
func jobAttempts(lines string) error {
	got := slices.Sorted(strings.Lines(lines))
	if len(got) != jobTasks+1 {
		return fmt.Errorf("%d attempts ran, want %d: %q", len(got), jobTasks+1, got)
	}
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		return fmt.Errorf("an attempt ran twice: %q", got)
	}
	again := slices.DeleteFunc(got, func(line string) bool { return !strings.HasSuffix(line, " 2\n") })
	if len(again) != 1 || !strings.HasSuffix(again[0], fmt.Sprintf(".%d 2\n", failsFirst)) {
		return fmt.Errorf("the second attempts are %q, want one of task %d", again, failsFirst)
	}
	return nil
}

// jobResults demands one correct result of each task. The result belongs to the second attempt if the first one had to
// fail.
func jobResults(lines string) error {
	seen := map[int]int{}
	for line := range strings.Lines(lines) {
		_, result, ok := strings.Cut(line, "result index=")
		if !ok {
			continue
		}
		var index, attempt int
		var sum uint64
		if _, err := fmt.Sscanf(result, "%d attempt=%d sum=%d", &index, &attempt, &sum); err != nil {
			return fmt.Errorf("read the result %q: %w", line, err)
		}
		wantAttempt := 1
		if index == failsFirst {
			wantAttempt = 2
		}
		if sum != squares(index) || attempt != wantAttempt {
			return fmt.Errorf("task %d found the sum %d in attempt %d, want %d in attempt %d",
				index, sum, attempt, squares(index), wantAttempt)
		}
		seen[index]++
	}
	for index := range jobTasks {
		if seen[index] != 1 {
			return fmt.Errorf("task %d has %d results, want 1", index, seen[index])
		}
	}
	return nil
}

// squares computes the expected result of a task of the job.
func squares(index int) (sum uint64) {
	for n := uint64(index) * 1000; n < uint64(index+1)*1000; n++ {
		sum += n * n
	}
	return sum
}

// verifyKill kills a container's process without Berth and waits for the next.
func (d *demo) verifyKill(ctx context.Context) (string, error) {
	tasks, err := d.berth.healthyTasks(ctx, "web")
	if err != nil {
		return "", err
	}
	if len(tasks) == 0 || len(tasks[0].Containers) == 0 || tasks[0].Containers[0].Pid <= 1 {
		return "", fmt.Errorf("berth ps shows no process of the web service: %+v", tasks)
	}
	victim := tasks[0].Containers[0].Pid
	killed := time.Now()
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return "", fmt.Errorf("kill process %d: %w", victim, err)
	}
	err = until(ctx, d.limit(time.Minute), func() error {
		now, err := d.berth.healthyTasks(ctx, "web")
		if err != nil {
			return err
		}
		for _, t := range now {
			if len(t.Containers) == 0 || t.Containers[0].Pid == victim {
				return fmt.Errorf("task %s still shows process %d", t.ID, victim)
			}
		}
		return d.webIs(ctx, "1")
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("process %d of task %s was replaced, healthy again after %.1f s",
		victim, tasks[0].ID, time.Since(killed).Seconds()), nil
}

// verifyRollout deploys the next version during requests. No request may fail.
func (d *demo) verifyRollout(ctx context.Context) (string, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var h hammer
	var loads sync.WaitGroup
	for range 2 {
		loads.Go(func() { h.strike(load, d.berth) })
	}
	rolled := d.berth.show(ctx, "run", "--timeout", d.limit(3*time.Minute).String(), "web-v2.yaml")
	settled := until(ctx, d.limit(10*time.Second), func() error { return d.webIs(ctx, "2") })
	stop()
	loads.Wait()
	if err := errors.Join(rolled, settled, h.verdict()); err != nil {
		return "", err
	}
	return fmt.Sprintf("version 2 everywhere, %d requests, none failed", h.sent), nil
}

// hammer sends requests to the healthy tasks, like a load balancer, and keeps the failures.
type hammer struct {
	mu       sync.Mutex
	sent     int
	failures []string
	versions []string
}

// refresh is how old a list of addresses may be.
const refresh = 200 * time.Millisecond

func (h *hammer) strike(ctx context.Context, b *berth) {
	var tasks []task
	var listed time.Time
	for i := 0; ctx.Err() == nil; i++ {
		if time.Since(listed) > refresh {
			asked := time.Now()
			now, err := b.healthyTasks(ctx, "web")
			if err == nil && len(now) == 0 {
				err = errors.New("no task of the web service is healthy")
			}
			if err != nil {
				h.note(ctx, "", err)
				continue
			}
			tasks, listed = now, asked
		}
		got, err := b.demo.askWeb(ctx, tasks[i%len(tasks)].addr("http"))
		h.note(ctx, got.Version, err)
	}
}

// note counts one request. An error at the end of the load is not a failure.
func (h *hammer) note(ctx context.Context, version string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			h.failures = append(h.failures, err.Error())
		}
		return
	}
	h.sent++
	if !slices.Contains(h.versions, version) {
		h.versions = append(h.versions, version)
	}
}

// verdict demands that requests were sent, none failed, and both versions answered.
func (h *hammer) verdict() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.versions)
	switch {
	case len(h.failures) > 0:
		return fmt.Errorf("%d of %d requests failed, the first with: %s", len(h.failures), h.sent+len(h.failures),
			h.failures[0])
	case !slices.Equal(h.versions, []string{"1", "2"}):
		return fmt.Errorf("the versions %q answered, want both", h.versions)
	}
	return nil
}
