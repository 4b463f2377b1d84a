package query

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cli/session"
)

// eventTypes returns the types of events in the order of docs/reference/events.md.
func eventTypes() []string {
	var all []string
	for _, group := range []struct{ noun, verbs string }{
		{"node", "adopted joined joining ready suspect down draining drained contested mass-silence " +
			"mass-silence-over pressure disk-freed disk-full forgotten drifted repaired upgraded upgrade-failed " +
			"released"},
		{"node-settings", "created updated"},
		{"task", "assigned pulling pulled running healthy warning failing restarted stopping permitted moving " +
			"preempted succeeded failed rejected lost cancelled reconnected adopted record-restored " +
			"record-removed record-refused"},
		{"service", "created updated deleted rollout-started canary-healthy promoted rollout-complete " +
			"rollout-failed rolled-back rollout-paused rollout-resumed scaled removed"},
		{"job", "created updated deleted held released needs-met retried overdue succeeded failed cancelled " +
			"expired removed"},
		{"cron", "created updated deleted fired missed skipped removed"},
		{"endpoint", "created updated deleted"},
		{"cluster", "created updated deleted"},
		{"definition", "created deleted removed updated"},
		{"rebalance", "started cancelled passed ended"},
		{"pool", "created updated deleted"},
		{"profile", "created deleted"},
		{"reservation", "created updated deleted"},
		{"secret", "created updated deleted"},
		{"secrets", "rekey rekeyed key-dropped"},
		{"server", "joined removed"},
		{"recovery", "needed decided"},
		{"domain", "created updated deleted claimed scheduler-silent taken-over"},
		{"clock", "jumped"},
		{"publisher", "gap"},
	} {
		for verb := range strings.FieldsSeq(group.verbs) {
			all = append(all, group.noun+"."+verb)
		}
	}
	return all
}

// isEventType reports whether a text is a type of events, or a noun that selects all of its types.
func isEventType(text string) bool {
	return slices.ContainsFunc(eventTypes(), func(known string) bool {
		return known == text || strings.HasPrefix(known, text+".")
	})
}

// unknownTypeText returns the message for a value of --type that is no type. It lists the types of its noun, or the
// nouns.
func unknownTypeText(text string) string {
	noun, _, hasVerb := strings.Cut(text, ".")
	var ofNoun, nouns []string
	for _, known := range eventTypes() {
		n, _, _ := strings.Cut(known, ".")
		if !slices.Contains(nouns, n) {
			nouns = append(nouns, n)
		}
		if n == noun {
			ofNoun = append(ofNoun, known)
		}
	}
	switch {
	case hasVerb && len(ofNoun) > 0:
		return session.UnknownWord("--type", text, ofNoun)
	case hasVerb:
		return session.UnknownWord("--type", text, append(eventTypes(), nouns...))
	}
	return session.UnknownWord("--type", text, nouns)
}
