package sim

import "testing"

// foundStories lists, for each fixed fault of Berth that a random story found, its shortest story.
var foundStories = []struct{ fault, story string }{
	{"a service with a fixed port never had all its tasks again: the attempt of a returned node kept the port of its successor", `berth-sim-story-1 seed 57 servers 1 nodes 3 consul false
1.2s user api : scale 3
28.309s reboot n1 for 1m6.278s
`},
	{"so did an attempt that was to move off a node, when the drain was called off", `berth-sim-story-1 seed 143 servers 1 nodes 3 consul false
1.2s user api : scale 3
24.403s replace n2 for 15.252s
34.253s user n3 : drain
50.783s server-crash s1 for 1.815s
`},
	{"an attempt that was given up before its node received it began when the node came back", `berth-sim-story-1 seed 266 servers 1 nodes 3 consul false
34.42s cut n3-s1 for 1m53.804s
43.276s user web : scale 3
`},
	{"a status that a foreign writer replaced was deleted, and its agent never reported the task again", `berth-sim-story-1 seed 235 servers 3 nodes 3 consul false
1s user web : scale 2
1.2s user api : scale 1
18.643s foreign n3 : both
1m16.604s server-crash s3 for 570ms
`},
	{"a program whose record the agent lost ran on unnoticed, and its task elsewhere too", `berth-sim-story-1 seed 499 servers 1 nodes 3 consul false
1s user web : scale 1
1.2s user api : scale 1
1.4s user disk : scale 3
9.723s wipe n2 for 8.232s
17.818s user batch : submit3 6
18.209s user web : scale 2
23.51s wipe n3 for 231ms
`},
	{"a node that registered for the first time, at a server that does not lead, was called down", `berth-sim-story-1 seed 5 servers 3 nodes 3 consul false
0s agent-crash n3 for 2m
1s user web : scale 1
`},
	{"a node that was forgotten and came back was declared down permanently, at a server that remembered its later sessions", `berth-sim-story-1 seed 360 servers 3 nodes 3 consul false
6.506s agent-crash n3 for 369ms
23.816s wipe n3 for 4.865s
1m14.822s replace n3 for 59.635s
1m33.722s user n3 : gone
`},
	{"an executor that hung while it removed what it could not start delayed its task forever", `berth-sim-story-1 seed 63 servers 3 nodes 3 consul false
1.6s user batch : submit 3
2.25s trouble n1 for 19.923s
11.564s user nightly : submit2 6
12.894s server-crash s3 for 3.687s
`},
	{"containers on a node that lost its state were never reported, if its executor did not answer when its agent began", `berth-sim-story-1 seed 1223 servers 1 nodes 3 consul false
1.4s user disk : scale 3
22.163s wipe n2 for 47.542s
1m6.114s trouble n2 for 6.865s
`},
	{"the records of a task were taken for foreign by a leader whose tables were late, and the task ran elsewhere too", `berth-sim-story-1 seed 1537 servers 3 nodes 3 consul false
1.4s user disk : scale 3
1.6s user batch : submit 8
12.488s lag s2 for 38.825s : 2s
41.704s foreign n2 : both
41.754s server-crash s1 for 1s
41.754s server-crash s2 for 1s
41.754s server-crash s3 for 1s
`},
	{"one half of a leader knew that the store had gone back and stood still, the other did not and went on", `berth-sim-story-1 seed 2428 servers 1 nodes 5 consul false
10.314s save db
18.267s user batch : submit 4
20.179s cut s1-db for 20.155s
20.629s restore db : raw
30.986s user batch : submit3 2
`},
	{"an attempt that was adopted after a restore ran another version forever, because the generation's number was used again", `berth-sim-story-1 seed 1053 servers 3 nodes 3 consul false
1.9s user logd : scale 0
20.69s user shop : undo 2
47.389s save db
57.518s user shop : undo 1
1m34.778s restore db
`},
	{"a service with a fixed port never had all its tasks again: the remains of a lost attempt kept the port of the next one, whose other earlier attempt was healthy", `berth-sim-story-1 seed 2789 servers 1 nodes 3 consul false
1s user web : scale 2
1.2s user api : scale 2
4.474s cut n2-s1 for 3m44.375s
7.603s user n3 : claim
54.929s user api : scale 3
`},
	{"a server that was behind took a node's report for another node's attempt, which it did not know", `berth-sim-story-1 seed 1129 servers 5 nodes 3 consul false
49.148s lie n3 for 26.039s : foreign
1m7.981s cut s4-db for 21.425s
1m10.045s user batch : submit2 3
`},
	{"after a restore an agent did not receive that attempts had ended, as the record had the revision of one that it had acted on before", `berth-sim-story-1 seed 1215 servers 1 nodes 4 consul false
1s user web : scale 3
1.2s user api : scale 3
1.4s user disk : scale 0
1.6s user batch : submit 4
1.8s user shop : scale 2
1.9s user logd : scale 0
5.107s crash-at s1 for 843ms : status before 3
10.996s user vip : urgent 4
13.206s lag s1 for 2.063s : 8s
21.129s agent-crash n3 for 1m52.48s
22.531s save db
22.791s user web : scale 1
24.168s user shop : promote
24.616s user shop : promote
25.406s user api : roll 2
27.147s user web : roll 2
30.93s user batch : slow 2
31.156s user nightly : submit2 5
37.385s user shop : scale 2
42.887s user logd : roll 2
45.062s restore db : raw
48.47s user disk : scale 1
`},
	{"after a restore an attempt that the store did not know kept its port forever, as the record that was to stop it had the key of another", `berth-sim-story-1 seed 2339 servers 1 nodes 3 consul false
1s user web : scale 4
1.2s user api : scale 2
1.4s user disk : scale 1
1.6s user batch : submit 6
1.7s user auto : scale 2
2s user minutely : tick
8.488s user batch : slow 1
15.308s user n1 : uncordon
18.52s load auto : 49
27.763s save db
28.702s user vip : urgent 2
38.185s user api : rebalance 2
41.701s load auto : fail
48.584s user batch : submit 5
55.527s restore db
59.954s user minutely : suspend
1m2.993s user minutely : tick
1m10.923s load auto : 5
1m31.052s server-crash s1 for 48.576s
1m42.694s replace n3 for 52.363s
1m55.023s user n3 : gone
1m57.805s pressure n2 for 18.738s
2m0.635s noise n1-s1 for 50.66s
2m7.247s cut n3-s1 for 5.486s
2m7.605s load auto : 49
`},
	{"after a restore a task was placed before its node reported it, and the leader wrote the new attempt's record under the old one's key without end", `berth-sim-story-1 seed 183 servers 1 nodes 3 consul false
1s user web : scale 2
1.2s user api : scale 1
1.8s user shop : scale 5
21.455s user n4 : cordon
24.138s save db
38.993s user shop : promote
40.406s user api : scale 1
41.598s user disk : scale 1
46.121s user n2 : drain
48.277s restore db : raw
51.701s user web : stop
`},
	{"an attempt that was lost before its node received it kept the next one off the node, when all others were full", `berth-sim-story-1 seed 3206 servers 3 nodes 3 consul false
1s user web : scale 4
1.2s user api : scale 3
1.7s user auto : scale 2
4.468s server-crash s2 for 621ms
6.777s user n2 : evict
8.344s agent-crash n3 for 2m45.212s
33.359s pressure n3 for 536ms
`},
	{"a stop that the former domain of a node wrote locked the node's own leader out", `berth-sim-story-1 seed 2318 servers 1 nodes 3 consul false
1s user web : scale 1
1.2s user api : scale 1
30.41s save db
55.848s user n3 : claim
55.991s user side : submit2 1
1m0.82s restore db : raw
1m37.822s user n2 : drain
`},
	{"a leader that learnt late of a claim carried out the placements of the scheduler before", `berth-sim-story-1 seed 1 servers 1 nodes 3 consul false
2s scheduler default : stubborn
20s lag s1 for 30s : 5s
22s scheduler default : stubborn
23s user web : scale 3
24s user web : scale 4
27s user web : scale 2
28s user api : scale 2
29s user disk : scale 3
30s user disk : scale 4
`},
	{"a leader that learnt late of a claim carried out the evictions of the scheduler before", `berth-sim-story-1 seed 130 servers 1 nodes 3 consul false
2s user web : scale 4
4s user disk : scale 4
4s user api : scale 3
10s scheduler default : senseless
20s lag s1 for 30s : 5s
22s scheduler default : stubborn
30s scheduler default : stubborn
`},
	{"a task that an external scheduler evicted while it started, and that was healthy before it could stop, kept its stop forever", `berth-sim-story-1 seed 25 servers 1 nodes 3 consul false
2s user web : scale 4
4s user disk : scale 4
4s user api : scale 3
10s scheduler default : senseless
20s lag s1 for 30s : 5s
22s scheduler default : stubborn
30s scheduler default : stubborn
`},
	{"a task of an older version, whose other tasks were all lost at once, began again with the number of an attempt that had ended", `berth-sim-story-1 seed 343 servers 1 nodes 3 consul false
1.4s user disk : scale 1
1.6s user batch : submit 7
1.8s user shop : scale 3
4.173s scheduler default for 22.918s : careful
5.453s user shop : undo 2
13.331s user shop : roll 9
17.089s replace n2 for 2.636s
41.581s user shop : roll 1
54.601s user api : rebalance 2
`},
	{"a foreign record on a node that does not exist pinned its task for ever", `berth-sim-story-1 seed 68 servers 1 nodes 3 consul false
1s user web : scale 1
1.2s user api : scale 1
1.4s user disk : scale 1
8.728s records default : senseless
31.257s replace n3 for 31.219s
36.742s user minutely : suspend
1m1.08s records default for 27.404s : careful
1m11.331s user disk : roll 2
1m13.698s user batch : submit3 1
1m15.848s records default for 25.94s : senseless
1m20.548s user minutely : tick
1m21.88s user disk : scale 2
1m57.207s disk-fails n3 for 27.978s
`},
	{"a command beside the remains of an attempt hindered their removal, and no decision about the service followed", `berth-sim-story-1 seed 4049 servers 1 nodes 4 consul false
1s user web : scale 3
1.2s user api : scale 1
1.4s user disk : scale 3
1.6s user batch : submit 2
1.7s user auto : scale 2
1.8s user shop : scale 3
5.311s records default for 10.399s : senseless
6.401s records default : senseless
11.762s user web : roll 9
13.501s engine-slow db for 19.018s : 2.013s
`},
	{"an attempt whose record was made again lost the number of its plan, and with it its domain", `berth-sim-story-1 seed 3723 servers 3 nodes 5 consul false
25.493s server-pause s3 for 5.985s
52.705s records elsewhere for 23.06s : senseless
52.949s user n4 : claim
53.113s user side : submit2 4
`},
	{"the leader's clock was behind those of the nodes, and each retry of a task waited for the difference", `berth-sim-story-1 seed 11488 servers 1 nodes 3 consul false
1m7.537s wall-jump s1 : -9m59s
1m16.575s user batch : submit3 3
`},
	{"attempts of a job's earlier run gave the next run a place in its concurrency group", `berth-sim-story-1 seed 56 servers 1 nodes 3 consul false
1s user web : scale 4
1m6.971s user nightly : graph 4
1m27.192s user batch : submit3 1
1m27.635s user batch : graph 6
`},
	{"a task had no place but the node that returned with its lost attempt, and waited for ever", `berth-sim-story-1 seed 3 servers 1 nodes 1 consul false
1s user web : scale 1
1m2.775s agent-crash n1 for 2m33.734s
`},
	{"a daemon's record that was made again let its task be lost with its silent node, and the next attempt had no place", `berth-sim-story-1 seed 30187 servers 1 nodes 3 consul false
1.9s user logd : scale 0
30.81s lag s1 for 14.575s : 1s
33.289s foreign n3 : both
33.339s server-crash s1 for 1s
1m2.775s agent-crash n3 for 2m33.734s
`},
}

// TestFoundFaultsStayFixed runs them again.
func TestFoundFaultsStayFixed(t *testing.T) {
	for _, f := range foundStories {
		story := parse(t, f.story)
		for range runsPerStory {
			for _, v := range Run(t, story, Options{}).Violations {
				t.Errorf("%s: %s", f.fault, v)
			}
		}
	}
}
