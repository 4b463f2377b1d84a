package output

import (
	"strings"

	"github.com/berthd/berth/api"
)

// Escape sequences of terminal colours.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Grey   = "90"
)

// colorWords colours the words that name a state.
func colorWords(text string) string {
	word, _, _ := strings.Cut(text, " ")
	color := ""
	switch word {
	case "healthy", "ready", "succeeded", "create", "complete":
		color = Green
	case "failing", "failed", "degraded", "down", "lost", "rejected", "rolled-back", api.TroubleCrashLoop,
		api.TroubleRolloutFailed, api.TroubleLostDevice, api.TroubleGivenUp, api.TroubleDiskFull:
		color = Red
	case "warning", "pending", "starting", "rolling-out", "suspect", "preparing", "assigned", "draining", "joining",
		"update", "stopping", "deleting",
		"rolling", api.TroubleCanary, api.TroublePaused, api.TroublePressure, api.TroubleDrainHeld, api.TroubleMissed,
		api.TroubleNoMoments, api.TroubleHungry, api.TroubleMisplaced:
		color = Yellow
	case "stopped", "cancelled", "drained", "suspended", "superseded":
		color = Grey
	}
	return Colored(text, color)
}

// Colored returns a text in a terminal colour. It returns the text itself if the text or the colour is empty.
func Colored(text, color string) string {
	if color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
