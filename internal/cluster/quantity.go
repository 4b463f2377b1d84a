package cluster

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MilliCPU is an amount of processor time in thousandths of one CPU. Its JSON form is "500m". It is read from "500m",
// "0.5", 0.5 or 2, where a bare number counts whole CPUs.
type MilliCPU int64

// ParseMilliCPU reads "500m", "0.5" or "2".
func ParseMilliCPU(s string) (MilliCPU, error) {
	if milli, ok := strings.CutSuffix(s, "m"); ok {
		n, err := strconv.ParseInt(milli, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not an amount of CPU: want \"500m\" or \"0.5\"", clip(s))
		}
		return MilliCPU(n), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > 1e9 {
		return 0, fmt.Errorf("%q is not an amount of CPU: want \"500m\" or \"0.5\"", clip(s))
	}
	return MilliCPU(math.Round(f * 1000)), nil
}

// String returns whole CPUs as "2", anything else as "500m".
func (m MilliCPU) String() string {
	if m%1000 == 0 {
		return strconv.FormatInt(int64(m/1000), 10)
	}
	return strconv.FormatInt(int64(m), 10) + "m"
}

// MarshalJSON writes "500m".
func (m MilliCPU) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatInt(int64(m), 10) + `m"`), nil
}

// UnmarshalJSON reads a string or a number of CPUs.
func (m *MilliCPU) UnmarshalJSON(b []byte) error {
	s, err := textOf(b)
	if err != nil {
		return err
	}
	*m, err = ParseMilliCPU(s)
	return err
}

// Bytes is a size. In JSON it is written as a number of bytes; it is read from a number
// or from text with a unit: binary "512KiB", "256Mi", "1.5GiB", or decimal "10GB", "64M".
type Bytes int64

// Units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

type unit struct {
	suffix string
	size   Bytes
}

// byteUnits are tried in this order, so a longer suffix precedes its own ending.
var byteUnits = [...]unit{
	{"TiB", TiB},
	{"GiB", GiB},
	{"MiB", MiB},
	{"KiB", KiB},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"Ti", TiB},
	{"Gi", GiB},
	{"Mi", MiB},
	{"Ki", KiB},
	{"T", 1e12},
	{"G", 1e9},
	{"M", 1e6},
	{"k", 1e3},
	{"K", 1e3},
	{"B", 1},
	{"", 1},
}

// ParseBytes reads a number of bytes with or without a unit. As in Kubernetes, "64M" is 64 million bytes and "64Mi" is
// 64 MiB.
func ParseBytes(s string) (Bytes, error) {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		number = strings.TrimSpace(number)
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			if n > math.MaxInt64/int64(u.size) || n < math.MinInt64/int64(u.size) {
				break
			}
			return Bytes(n) * u.size, nil
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(f) || math.Abs(f)*float64(u.size) > 1e18 {
			break
		}
		return Bytes(math.Round(f * float64(u.size))), nil
	}
	return 0, fmt.Errorf("%q is not a size: want bytes, or a number with KiB, MiB, GiB (binary) or K, M, G (decimal)",
		clip(s))
}

// String returns the size in the largest binary unit that keeps it readable: "256 MiB", "1.5 GiB".
func (b Bytes) String() string {
	n := b
	if n < 0 {
		n = -n
	}
	for _, u := range byteUnits[:4] {
		if n < u.size {
			continue
		}
		if b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + " " + u.suffix
		}
		return strconv.FormatFloat(math.Round(float64(b)/float64(u.size)*10)/10, 'f', -1, 64) + " " + u.suffix
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// UnmarshalJSON reads a number of bytes or text with a unit.
func (b *Bytes) UnmarshalJSON(in []byte) error {
	s, err := textOf(in)
	if err != nil {
		return err
	}
	*b, err = ParseBytes(s)
	return err
}

// Duration is a time span. In JSON it is text such as "250ms" or "1m30s".
type Duration time.Duration

// String returns the span as time.Duration does, without trailing parts that are 0: "1h" for one hour.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(`"` + d.String() + `"`), nil
}

// UnmarshalJSON reads the text form, or the number 0.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s, err := textOf(b)
	if err != nil {
		return err
	}
	span, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration: want a number with a unit, such as \"500ms\", \"10s\" or \"5m\"",
			clip(s))
	}
	*d = Duration(span)
	return nil
}

// textOf returns the text of a JSON string or number.
func textOf(b []byte) (string, error) {
	if len(b) > 0 && b[0] == '"' {
		var s string
		err := json.Unmarshal(b, &s)
		return s, err
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return "", fmt.Errorf("%s is neither text nor a number", clip(string(b)))
	}
	return n.String(), nil
}
