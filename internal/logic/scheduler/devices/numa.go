package devices

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// assignOnOne is assign where some requests must be served from one NUMA node. It takes the possible NUMA node with the
// fewest free devices, so that others stay whole. Devices with an unknown NUMA node go with any.
func assignOnOne(list []cluster.Device, used Uses, requests []cluster.DeviceRequest) (uses Uses,
	lacking int, now Uses,
) {
	var together, rest []cluster.DeviceRequest
	var togetherAt, restAt []int
	for i, r := range requests {
		if r.OneNuma {
			together, togetherAt = append(together, r), append(togetherAt, i)
		} else {
			rest, restAt = append(rest, r), append(restAt, i)
		}
	}
	lacking, now = togetherAt[0], used
	for _, near := range numaNodes(list, used) {
		some, i, after := assignAny(near, used, together)
		if i >= 0 {
			lacking, now = togetherAt[i], used
			continue
		}
		if uses, i, now = assignAny(list, after, rest); i >= 0 {
			lacking = restAt[i]
			continue
		}
		for _, u := range some {
			uses = uses.Add(u, 1)
		}
		return uses, -1, now
	}
	return nil, lacking, now
}

// numaNodes returns the devices of each NUMA node, with those of unknown NUMA node; the one with the fewest free first.
// If no NUMA node is known, all devices are together.
func numaNodes(list []cluster.Device, used Uses) [][]cluster.Device {
	var numbers []int
	free := map[int]int{}
	for i := range list {
		if n := list[i].Numa; n >= 0 {
			if !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
			if _, taken := used.Find(list[i].ID); !taken {
				free[n]++
			}
		}
	}
	if len(numbers) == 0 {
		return [][]cluster.Device{list}
	}
	slices.SortFunc(numbers, func(a, b int) int { return cmp.Or(cmp.Compare(free[a], free[b]), cmp.Compare(a, b)) })
	all := make([][]cluster.Device, len(numbers))
	for i, n := range numbers {
		for _, d := range list {
			if d.Numa == n || d.Numa < 0 {
				all[i] = append(all[i], d)
			}
		}
	}
	return all
}

// oneNumaText is Text for a request that one NUMA node must serve.
func oneNumaText(list []cluster.Device, used Uses, r *cluster.DeviceRequest, kind string) (text string,
	short int,
) {
	most := 0
	for _, near := range numaNodes(list, used) {
		if r.Share > 0 && sharedDevice(near, used, r) != nil {
			most = r.Count
		} else if r.Share == 0 {
			most = max(most, len(freeDevices(near, used, r)))
		}
	}
	if most >= r.Count {
		return "not enough " + kind + " free on the NUMA node of what else the task requests", 0
	}
	return "too few " + kind + " free on one NUMA node", r.Count - most
}
