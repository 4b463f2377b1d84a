package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// burn is a service with one busy container, against a limit of a fifth of a CPU, and one idle container.
const burn = `
kind: TaskDefinition
name: burn
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'while :; do :; done']
    resources: {cpu: 10m, cpu_limit: 200m, memory: 16MiB}
  - name: rests
    image: ` + harness.Image + `
    command: [sh, -c, 'while :; do sleep 1; done']
    resources: {cpu: 10m, memory: 16MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: burn
definition: burn@1
count: 1
`

// prometheus runs a real Prometheus that scrapes targets with a token, and answers queries.
type prometheus struct {
	t     *testing.T
	url   string
	ended <-chan struct{}
}

// prometheusListens finds the address in what Prometheus logs when it serves.
var prometheusListens = regexp.MustCompile(`msg="?Listening on"? address=(\S+)`)

func startPrometheus(t *testing.T, s *harness.Site, target, tokenFile string) prometheus {
	t.Helper()
	config := s.Write("prometheus.yaml", fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: berth-tasks
    authorization: {credentials_file: %s}
    static_configs: [{targets: [%q]}]
`, tokenFile, target))
	// ended below
	cmd := exec.Command("prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"),
		"--web.listen-address=127.0.0.1:0")
	out := new(harness.Output)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the test
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its output shows the error
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its content is removed with its folder
		<-ended
		if t.Failed() {
			t.Logf("prometheus says:\n%s", out.String())
		}
	})
	var listen string
	testkit.Eventually(t, soon, func() error {
		found := prometheusListens.FindStringSubmatch(out.String())
		if found == nil {
			return fmt.Errorf("prometheus does not say where it listens:\n%s", out)
		}
		listen = found[1]
		return nil
	})
	return prometheus{t, "http://" + listen, ended}
}

// query returns the values of a query, by a label.
func (p prometheus) query(query, label string) (map[string]float64, error) {
	select {
	case <-p.ended:
		p.t.Fatal("prometheus has ended")
	default:
	}
	ctx, cancel := testkit.WithLimit(p.t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(query),
		nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var reply struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  []any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("%s: %s", query, reply.Error)
	}
	values := map[string]float64{}
	for _, r := range reply.Data.Result {
		text, _ := r.Value[1].(string)
		if values[r.Metric[label]], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// TestPrometheusScrapesTasks has a real Prometheus scrape a node's tasks, one of them with a busy container, and
// queries it. `berth top` shows the same.
func TestPrometheusScrapesTasks(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		testkit.NeedCommand(t, "prometheus")
		needLimits(t)
		s := harness.New(t, executor)
		token := s.Write("metrics.token", "a-token-for-prometheus\n")
		s.Server()
		agent := s.Agent("--metrics-listen", "127.0.0.1:0", "--metrics-token-file", token, "--log-level", "info")
		s.Berth("run", s.Write("burn.yaml", burn)).Want(t, 0, "healthy")
		s.Tasks(client.TaskFilter{Service: "burn"}) // for the leak check
		target := metricsAddress(t, agent)

		resp, err := http.Get("http://" + target + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // for the connection
		_ = resp.Body.Close()                 // it was read
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without the token the metrics are answered with %s", resp.Status)
		}

		p := startPrometheus(t, s, target, token)
		const of = `{cluster="default",service="burn",task="default.burn.1.0"}`
		want := func(query, label string, ok func(map[string]float64) bool) {
			t.Helper()
			query = strings.ReplaceAll(query, "{}", of)
			s.Eventually(2*soon, func() error {
				got, err := p.query(query, label)
				if err == nil && !ok(got) {
					err = fmt.Errorf("%s is %v", query, got)
				}
				return err
			})
		}
		want(`berth_task_cpu_seconds_total{}`, "container", func(v map[string]float64) bool {
			return len(v) == 2 && v["main"] > 0.2 && v["rests"] < v["main"]/2
		})
		// The limit is 0.2, and the scrapes read measurements of every two seconds.
		want(`rate(berth_task_cpu_seconds_total{}[20s])`, "container", func(v map[string]float64) bool {
			return v["main"] > 0.005 && v["main"] < 0.4
		})
		want(`topk(1, sum by (service) (rate(berth_task_cpu_seconds_total[20s])))`, "service",
			func(v map[string]float64) bool {
				return v["burn"] > 0.005
			})
		want(`berth_task_memory_bytes{}`, "container", func(v map[string]float64) bool {
			return v["main"] > 0 && v["rests"] > 0
		})
		want(`berth_task_cpu_throttled_periods_total{} / berth_task_cpu_periods_total{}`, "container",
			func(v map[string]float64) bool {
				return v["main"] > 0 && v["main"] <= 1
			})
		want(`berth_agent_container_starts_total`, "result", func(v map[string]float64) bool {
			return v["ok"] >= 2 && v["error"] == 0
		})
		want(`rate(process_cpu_seconds_total[20s])`, "job", func(v map[string]float64) bool {
			return v["berth-tasks"] > 0
		})
		if v, err := p.query(`count({__name__=~"berth_task_network_.*"})`, ""); err != nil || len(v) != 0 {
			t.Errorf("on the network of the node tasks have none of their own, but there are %v, %v", v, err)
		}

		s.Eventually(2*soon, func() error {
			for view, words := range map[string][]string{
				"tasks --containers": {"burn.1.0", "  main", "  rests", "THROTTLED", "host"},
				"services":           {"service/burn", "1 task of 1 service"},
				"nodes":              {"ready", "CPU USED"},
			} {
				r := s.Berth(append([]string{"top"}, strings.Fields(view)...)...)
				for _, w := range words {
					if r.Code != 0 || !strings.Contains(r.Stdout, w) {
						return fmt.Errorf("berth top %s lacks %q:\n%v", view, w, r)
					}
				}
			}
			return nil
		})
	})
}

// metricsAddress waits until the agent has published the address of its metrics.
func metricsAddress(t *testing.T, agent *harness.Daemon) (target string) {
	t.Helper()
	testkit.Eventually(t, soon, func() error {
		_, rest, _ := strings.Cut(agent.Output(), "at=http://")
		var found bool
		if target, _, found = strings.Cut(rest, "/metrics"); !found {
			return fmt.Errorf("the agent does not say where its metrics are:\n%s", agent.Output())
		}
		return nil
	})
	return target
}

// TestMetricsNeedAToken has the agent refuse to show metrics to other machines without a token.
func TestMetricsNeedAToken(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Berth("agent", "--metrics-listen", ":0", "--data-dir", filepath.Join(s.Dir, "a")).Want(t, 2,
		"--metrics-token-file", "127.0.0.1")
	s.Berth("agent", "--metrics-listen", "here", "--data-dir", filepath.Join(s.Dir, "a")).Want(t, 2,
		`--metrics-listen "here"`)
}
