package ci_test

import (
	"math"
	"testing"

	"github.com/berthd/berth/internal/sim/ci"
)

// TestFairTasks computes weighted dominant resource fairness of small cases by hand.
func TestFairTasks(t *testing.T) {
	for _, tt := range []struct {
		name        string
		total, room ci.Amounts
		contenders  []ci.Contender
		want        [][]float64
	}{
		{
			"the example of the paper",
			ci.Amounts{9, 18},
			ci.Amounts{9, 18},
			[]ci.Contender{{Weight: 1, Users: []ci.Amounts{{1, 4}}}, {Weight: 1, Users: []ci.Amounts{{3, 1}}}},
			[][]float64{{3}, {2}},
		},
		{
			"weights and users",
			ci.Amounts{60, 60},
			ci.Amounts{60, 60},
			[]ci.Contender{{Weight: 1, Users: []ci.Amounts{{1}, {2}}}, {Weight: 2, Users: []ci.Amounts{{1}}}},
			[][]float64{{10, 5}, {40}},
		},
		{
			"a part of the nodes",
			ci.Amounts{60, 0, 10},
			ci.Amounts{32, 0, 10},
			[]ci.Contender{{Weight: 1, Users: []ci.Amounts{{1, 0, 1}}}, {Weight: 1, Users: []ci.Amounts{{1}}}},
			[][]float64{{32. / 7}, {32. / 7 * 6}},
		},
		{
			"devices that are used up",
			ci.Amounts{60, 0, 10},
			ci.Amounts{60, 0, 10},
			[]ci.Contender{{Weight: 9, Users: []ci.Amounts{{1, 0, 1}}}, {Weight: 1, Users: []ci.Amounts{{1}}}},
			[][]float64{{10}, {50}},
		},
		{
			"tasks of a higher level",
			ci.Amounts{60},
			ci.Amounts{60},
			[]ci.Contender{
				{Weight: 1, Held: ci.Amounts{10}, Users: []ci.Amounts{{1}}}, {Weight: 1, Users: []ci.Amounts{{1}}},
			},
			[][]float64{{20}, {30}},
		},
		{"nothing", ci.Amounts{60}, ci.Amounts{60}, []ci.Contender{{Weight: 1, Held: ci.Amounts{10}}}, [][]float64{{}}},
	} {
		got := ci.FairTasks(tt.total, tt.room, tt.contenders)
		for i, users := range tt.want {
			for k, want := range users {
				if math.Abs(got[i][k]-want) > 0.02 {
					t.Errorf("%s: got %.2f, want %.2f", tt.name, got, tt.want)
				}
			}
		}
	}
}

// TestFairUsers checks the jobs of the users of the fair queue.
func TestFairUsers(t *testing.T) {
	for _, u := range ci.FairUsers() {
		job, def := u.Job(7), u.Definition()
		if err := job.Validate(); err != nil {
			t.Error(err)
		}
		if def.Demand() != u.Demand || len(def.Devices()) != u.Devices {
			t.Errorf("%s: tasks request %v and %v, want %v and %d devices", u.Name, def.Demand(), def.Devices(),
				u.Demand, u.Devices)
		}
		if job.SubmittedBy != u.Name || !ci.Owns(job.Cluster) || u.Weight() == 0 {
			t.Errorf("%s: the job is %+v", u.Name, job)
		}
	}
}
