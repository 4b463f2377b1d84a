package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/berthd/berth/api/client"
)

// Exit codes. exec passes the code of its command through and uses exitExec for its own faults.
const (
	exitNo          = 1   // the answer is no: unhealthy, failed, something to change, a fault that validate found
	exitFault       = 2   // it could not be done: wrong arguments, no server, refused
	exitExec        = 125 // exec: the command could not be run
	exitInterrupted = 130
)

// exitError is an error that asks for an exit code. Without an error there is nothing to print.
type exitError struct {
	code int
	err  error
}

// Error returns the error's text.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error.
func (e *exitError) Unwrap() error { return e.err }

// usageError is a fault of the command line, with the command whose help tells more.
type usageError struct {
	command string
	message string
}

// Error returns one clear line.
func (e *usageError) Error() string { return e.message }

// hintedError is an error with what to do about it.
type hintedError struct {
	err  error
	hint string
}

// Error returns the error's text, without the hint.
func (e *hintedError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *hintedError) Unwrap() error { return e.err }

// exitCode prints an error, if there is one, and returns the code for it.
func (a *app) exitCode(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	exit, asked := errors.AsType[*exitError](err)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		a.tell("berth: interrupted")
		return exitInterrupted
	}
	if !asked || exit.err != nil {
		a.tell("berth: %s", said(err))
		if hint := a.hint(err); hint != "" {
			a.tell("%s", hint)
		}
	}
	if asked {
		return exit.code
	}
	return exitFault
}

// hint says what to do about an error, or nothing.
func (a *app) hint(err error) string {
	if e, ok := errors.AsType[*usageError](err); ok {
		return "See '" + e.command + " --help'."
	}
	if e, ok := errors.AsType[*hintedError](err); ok {
		return e.hint
	}
	if hint := tlsHint(err); hint != "" {
		return hint
	}
	switch {
	case errors.Is(err, client.ErrUnreachable) && strings.Contains(err.Error(), "malformed HTTP"):
		return a.foreignHint()
	case errors.Is(err, client.ErrUnreachable):
		if strings.Contains(a.findAddr(), "https://") {
			return "See that the servers run and that their https addresses are reached from here (--addr, BERTH_ADDR)."
		}
		return "Start a server with 'berth dev', or name one with --addr or BERTH_ADDR."
	}
	if hint := a.answerHint(err); hint != "" {
		return hint
	}
	return systemHint(err)
}
