package tables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// HealthyByVersion counts the healthy tasks of each version. Old versions with the same definition are one.
func HealthyByVersion(versions []api.VersionCount) string {
	restart := haveSameDefinition(versions) // after a restart the definitions of old and new are equal
	var parts []string
	var old []cluster.Ref
	healthy := map[cluster.Ref]int{}
	for _, v := range versions {
		switch {
		case v.Newest && restart:
			parts = append(parts, fmt.Sprintf("new: %d of %d healthy", v.Healthy, max(v.Desired, v.Begun)))
		case v.Newest:
			parts = append(parts, fmt.Sprintf("%s: %d of %d healthy", v.Definition, v.Healthy, max(v.Desired, v.Begun)))
		default:
			if !slices.Contains(old, v.Definition) {
				old = append(old, v.Definition)
			}
			healthy[v.Definition] += v.Healthy
		}
	}
	for _, ref := range old {
		label := ref.String()
		if restart {
			label = "old"
		}
		parts = append(parts, fmt.Sprintf("%s: %d healthy", label, healthy[ref]))
	}
	return strings.Join(parts, ", ")
}

// haveSameDefinition reports whether all versions run the same definition.
func haveSameDefinition(versions []api.VersionCount) bool {
	return len(versions) > 1 && !slices.ContainsFunc(versions, func(v api.VersionCount) bool {
		return v.Definition != versions[0].Definition
	})
}
