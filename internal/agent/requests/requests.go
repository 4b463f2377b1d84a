// Package requests reads how many requests programs have answered, from their metrics pages in Prometheus' text format.
package requests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/berthd/berth/internal/cluster"
)

// Timeout limits the reading of a page; MaxPage limits its size, in bytes.
const (
	Timeout = 2 * time.Second
	MaxPage = 1 << 20
)

// Reader reads metrics pages. It may be used concurrently.
type Reader struct{ client *http.Client }

// New returns a Reader that keeps no connections, because programs come and go.
func New() *Reader {
	return &Reader{&http.Client{
		Timeout:       Timeout,
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Count returns the sum of the counters of a series on the metrics page of a program at host. For a histogram or a
// summary it is the sum of the counts, under the name without "_count". Empty fields of the request counter source have
// defaults, and port is required. A page without the series is an error.
func (r *Reader) Count(ctx context.Context, host string, port int, m cluster.RequestCounter) (float64, error) {
	path, series := m.Path, m.Series
	if path == "" {
		path = cluster.DefaultRequestsPath
	}
	if series == "" {
		series = cluster.DefaultRequestsSeries
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+net.JoinHostPort(host, strconv.Itoa(port))+"/"+strings.TrimPrefix(path, "/"), http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("read its request counter: %w", err)
	}
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read its request counter: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read its request counter: %s answers %s", path, resp.Status)
	}
	page := &io.LimitedReader{R: resp.Body, N: MaxPage + 1}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	switch {
	case page.N <= 0:
		return 0, fmt.Errorf("read its requests: %s is longer than %d bytes", path, MaxPage)
	case err != nil:
		return 0, fmt.Errorf("read its requests: %w", err)
	}
	if f := families[series]; f != nil {
		return sum(f), nil
	}
	if base, ok := strings.CutSuffix(series, "_count"); ok && families[base] != nil {
		return sum(families[base]), nil
	}
	return 0, fmt.Errorf("read its requests: %s has no %s", path, series)
}

func sum(f *dto.MetricFamily) (total float64) {
	for _, m := range f.GetMetric() {
		switch f.GetType() {
		case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
			total += float64(m.GetHistogram().GetSampleCount())
		case dto.MetricType_SUMMARY:
			total += float64(m.GetSummary().GetSampleCount())
		case dto.MetricType_COUNTER:
			total += m.GetCounter().GetValue()
		case dto.MetricType_UNTYPED:
			total += m.GetUntyped().GetValue()
		case dto.MetricType_GAUGE:
			total += m.GetGauge().GetValue()
		}
	}
	return total
}
