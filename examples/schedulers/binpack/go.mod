module example.org/berth-binpack

go 1.26.8

require github.com/berthd/berth v0.0.0

require github.com/coder/websocket v1.8.15 // indirect

// The checkout that contains this example. A module of your own names a version instead.
replace github.com/berthd/berth => ../../..
