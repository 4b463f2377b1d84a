package planted

func concurrent(f func()) {
	go f()                 // want "go statement"
	c := make(chan int, 1) // want "channel: hand values in and out"
	c <- 1                 // want "channel operation"
	<-c                    // want "channel operation"
	select {               // want "channel operation"
	default:
	}
}
