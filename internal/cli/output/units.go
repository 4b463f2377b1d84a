package output

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// PortRanges writes ports in the form of the flag: "22,8000-8100".
func PortRanges(ports []int) string { return cluster.JoinPortRanges(cluster.PortRangesOf(ports)) }

// ShortID returns the first 8 characters of an id.
func ShortID(id string) string { return id[:min(len(id), 8)] }

// Share writes a part of a whole: "2/3".
func Share(part, whole string) string { return part + "/" + whole }

// CPUs writes CPUs with at most two decimals: "0.5", "4".
func CPUs(m cluster.MilliCPU) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", float64(m)/1000), "0"), ".")
}

// Size writes a size without a space: "512MiB".
func Size(b cluster.Bytes) string {
	if b == 0 {
		return "0"
	}
	return strings.ReplaceAll(b.String(), " ", "")
}

// Percent writes a share from 0 to 1 in whole percent: "42%".
func Percent(share float64) string { return strconv.Itoa(int(share*100+0.5)) + "%" }

// EmptyIfNil replaces nil by an empty list, so that programs read [] and not null.
func EmptyIfNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// FormatAbove returns a number as text if it is above usual, else "".
func FormatAbove(n, usual int) string {
	if n <= usual {
		return ""
	}
	return strconv.Itoa(n)
}

// FormatMinute writes a time for people to the minute: in the local zone, with date and zone.
func FormatMinute(at time.Time) string { return at.Local().Format("2006-01-02 15:04 MST") }

// FormatClock writes a time for people to the minute, in the local zone. The date is left out if it is that of the
// other time.
func FormatClock(at, other time.Time) string {
	at, other = at.Local(), other.Local()
	if at.Year() == other.Year() && at.YearDay() == other.YearDay() {
		return at.Format("15:04")
	}
	return at.Format("2006-01-02 15:04")
}

// FormatSecond writes a time for people to the second: in the local zone, with date and zone.
func FormatSecond(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05 MST") }
