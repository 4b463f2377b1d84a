package cluster

import (
	"strings"
	"testing"
)

// Addresses of passive nodes are read, and faults are named.
func TestDialAddress(t *testing.T) {
	for text, want := range map[string]DialAddress{
		"10.0.0.5":               {TCP: "10.0.0.5:7073"},
		"edge-7.example.org:900": {TCP: "edge-7.example.org:900"},
		"fd00::5":                {TCP: "[fd00::5]:7073"},
		"[fd00::5]:900":          {TCP: "[fd00::5]:900"},
		"ssh://10.0.0.5":         {SSH: "10.0.0.5"},
		"ssh://ops@edge:2222":    {SSH: "ops@edge:2222"},
		"ssh://ops@[fd00::5]:22": {SSH: "ops@[fd00::5]:22"},
	} {
		if got, err := ParseDialAddress(text); got != want || err != nil {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                       "the host is missing",
		":7073":                  "the host is missing",
		"edge:":                  "the port is missing",
		"edge:x":                 "the port is not a number",
		"edge:65536":             "the port is not a number",
		"fd00::5:x":              "brackets",
		"[fd00::5":               "brackets",
		"[fd00::5]x":             "brackets",
		"https://edge:7073":      "brackets",
		"-oProxyCommand=x":       "strange letter",
		"ssh://-oProxyCommand=x": "strange letter",
		"ssh://@edge":            "the user is missing",
		"ssh://a b@edge":         "the user is missing",
		"ops@edge":               "strange letter",
		strings.Repeat("a", 256): "too long",
	} {
		if got, err := ParseDialAddress(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %+v, %v; want an error with %q", text, got, err, want)
		}
	}
}
