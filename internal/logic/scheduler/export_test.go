package scheduler

// FirstPort is where the search for a task's ports begins.
var FirstPort = firstPort
