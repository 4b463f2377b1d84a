// Command fetch is a task of the tests of names: `fetch wait` waits, `fetch get URL` prints a page, `fetch lookup NAME`
// prints the addresses of a name. It resolves names without the C library, like statically linked programs.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	if len(args) == 1 && args[0] == "wait" {
		time.Sleep(time.Hour)
		return nil
	}
	if len(args) != 2 {
		return fmt.Errorf("usage: wait | get URL | lookup NAME")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if args[0] == "lookup" {
		all, err := net.DefaultResolver.LookupHost(ctx, args[1])
		if err == nil {
			fmt.Fprintln(stdout, all)
		}
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[1], nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(stdout, resp.Body)
	return err
}
