// Package thread does work on threads of the system that are not used for anything else.
package thread

import (
	"os"
	"runtime"
	"syscall"
)

// Apart calls do on a thread that ends with it, and with it whatever do made of the thread: its namespaces, its rights,
// its niceness. That is never the first thread of the process, which cannot end: all that /proc shows of the process
// itself belongs to that thread. Goroutines that do starts run on other threads. Safe for concurrent use.
func Apart(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			done <- Apart(do) // on another one, as this goroutine holds the first
			runtime.UnlockOSThread()
			return
		}
		done <- do() // never unlocked: the thread ends with this goroutine
	}()
	return <-done
}
