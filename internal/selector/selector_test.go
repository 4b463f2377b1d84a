package selector

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestSelector checks the conditions of selectors against one set of labels.
func TestSelector(t *testing.T) {
	labels := cluster.Labels{"app": "shop", "tier": "", "example.com/owner": "ann"}
	for text, want := range map[string]bool{
		"app=shop": true, "app==shop": true, "app = shop": true, "app=bank": false, "tier=": true, "none=": false,
		"app!=shop": false, "app!=bank": true, "none!=x": true,
		"app": true, "tier": true, "none": false, "!app": false, "!none": true,
		"example.com/owner=ann,app": true, "app,!tier": false, "app=shop, tier": true,
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Matches(labels); got != want {
			t.Errorf("%q matches: got %v, want %v", text, got, want)
		}
	}
	if !(Labels{}).Matches(nil) {
		t.Error("an empty selector does not select everything")
	}
	for _, text := range []string{"", "a,,b", "=x", "!", "a b", "a in (b)", "!=x", strings.Repeat("a,", 64) + "a"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, s)
		}
	}
}
