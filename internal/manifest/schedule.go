package manifest

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/timetable"
)

// scheduleFaults returns the faults of an object's schedules and zones. Package cluster cannot check them, because they
// need a time zone database.
func scheduleFaults(value any) (faults cluster.Faults) {
	check := func(expr, zone, path, zonePath string) {
		if _, err := timetable.Zone(zone); err != nil {
			faults = append(faults, cluster.Fault{Path: zonePath, Message: err.Error()})
			return
		}
		if _, err := timetable.Parse(expr, zone); err != nil && expr != "" {
			faults = append(faults, cluster.Fault{Path: path, Message: err.Error()})
		}
	}
	switch v := value.(type) {
	case *cluster.Cron:
		for i, expr := range v.Schedules {
			check(expr, v.Zone, fmt.Sprintf("schedules[%d]", i), "zone")
		}
	case *cluster.Service:
		if v.Scaling == nil {
			return nil
		}
		for i, s := range v.Scaling.Schedules {
			path := fmt.Sprintf("scaling.schedules[%d].", i)
			check(s.Cron, s.Zone, path+"cron", path+"zone")
		}
	}
	return faults
}
