package output

import (
	"strings"

	"github.com/berthd/berth/api"
)

// Colours.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Grey   = "90"
)

// painted colours the words that tell how something is.
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

// Colored returns a text in a colour of a terminal; the text itself if either is empty.
func Colored(text, color string) string {
	if color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
