//go:build prove

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// nginxConfig is a whole configuration of nginx around the files of examples/nginx: %[1]s is the folder of the site,
// %[2]s the address of a second server, whose requests are tried once.
const nginxConfig = `daemon off;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path %[1]s/nginx-body;
    proxy_temp_path %[1]s/nginx-proxy;
    fastcgi_temp_path %[1]s/nginx-fastcgi;
    uwsgi_temp_path %[1]s/nginx-uwsgi;
    scgi_temp_path %[1]s/nginx-scgi;
    include %[1]s/upstream.conf;
    include %[1]s/site.conf;
    server {
        listen %[2]s;
        location / {
            proxy_pass http://kiosk;
            proxy_next_upstream off;
        }
    }
}
`

// startNginx starts nginx with the example's configuration and the file of `berth addresses`.
func (p *proxied) startNginx(main string) {
	p.t.Helper()
	var out harness.Output
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), "nginx", "-c", main)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &out, &out, p.Dir, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its workers are in its group
		<-ended
		if p.t.Failed() {
			p.t.Logf("nginx:\n%s", out.String())
		}
	})
	p.Eventually(soon, func() error { return p.get(http.DefaultClient, p.strict) })
}

// upstream returns how many servers the file has, and how many of them are down.
func (p *proxied) upstream() (servers, down int, err error) {
	text, err := os.ReadFile(p.config)
	if err == nil && !strings.HasSuffix(string(text), "}\n") {
		err = fmt.Errorf("a part of a file:\n%s", text)
	}
	for line := range strings.Lines(string(text)) {
		if line, ok := strings.CutPrefix(strings.TrimSpace(line), "server "); ok {
			servers++
			if line, _, _ = strings.Cut(line, ";"); strings.HasSuffix(line, " down") {
				down++
			}
		}
	}
	return servers, down, err
}

// wantUpstream waits until the file has a number of servers, and of servers that are down.
func (p *proxied) wantUpstream(servers, down int) {
	p.t.Helper()
	p.Eventually(2*soon, func() error {
		n, off, err := p.upstream()
		if err == nil && (n != servers || off != down) {
			err = fmt.Errorf("the file has %d servers, %d of them down, want %d and %d", n, off, servers, down)
		}
		return err
	})
}

// TestNginxFollowsEndpoint runs a real nginx that reads the file of `berth addresses`. While clients send requests
// through it, the service is scaled and rolled out, and a task is killed. No request fails because of Berth.
func TestNginxFollowsEndpoint(t *testing.T) {
	// not parallel: as TestProxyFollowsEndpoint
	testkit.NeedCommand(t, "nginx")
	s := harness.New(t, harness.Process)
	p := &proxied{Site: s, t: t, folder: "nginx", config: filepath.Join(s.Dir, "upstream.conf")}
	p.program = harness.Program(t, s.Dir, "./examples/programs/web")
	for _, address := range []*string{&p.tolerant, &p.strict} {
		var err error
		if *address, err = freeport.Address(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Server()
	s.Agent()
	p.run(1).Want(t, 0)

	s.Write("site.conf", p.example("kiosk.conf", "127.0.0.1:8080", p.tolerant))
	main := s.Write("nginx.conf", fmt.Sprintf(nginxConfig, s.Dir, p.strict))
	pidFile := filepath.Join(s.Dir, "nginx.pid")
	follower := s.Start("addresses", "kiosk-http", "--file", p.config, "--template",
		s.Write("kiosk.conf.template", p.example("kiosk.conf.template")), "--min-interval", "200ms", "--exec",
		fmt.Sprintf("test ! -e %s || nginx -q -t -c %s && nginx -s reload -c %[2]s", pidFile, main))
	p.wantUpstream(3, 0)
	p.startNginx(main)

	// 1. A rollout and a smaller count: each task leaves the file before its TERM, after which it takes no request.
	stop := p.sendRequests(p.strict)
	s.Berth("scale", "kiosk", "4").Want(t, 0)
	p.wantUpstream(4, 0)
	p.run(2).Want(t, 0)
	p.wantUpstream(3, 0)
	p.wantNone("a rollout", stop, 0)

	// 2. A killed task is tried again elsewhere. A request in flight at it may fail.
	stop = p.sendRequests(p.tolerant)
	task := running(t, s, "kiosk", 3)[0]
	if err := syscall.Kill(task.Containers[0].Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.Eventually(2*soon, func() error {
		now, err := s.Client().Task(t.Context(), task.ID)
		if err == nil && now.Restarts == task.Restarts {
			err = errors.New("the task was not started again")
		}
		return err
	})
	running(t, s, "kiosk", 3)
	p.wantUpstream(3, 0)
	p.wantNone("a killed task", stop, 1)

	// 3. Without a task, nginx accepts the file, and answers that nobody serves the page.
	s.Berth("scale", "kiosk", "0").Want(t, 0)
	p.wantUpstream(1, 1)
	s.Eventually(soon, func() error {
		if err := p.get(http.DefaultClient, p.tolerant); err == nil || !strings.Contains(err.Error(), "status 502") {
			return fmt.Errorf("a request without tasks: %w", err)
		}
		return nil
	})
	if out := follower.Output(); strings.Contains(out, "nginx: [emerg]") {
		t.Errorf("nginx refused a file:\n%s", out)
	}
}
