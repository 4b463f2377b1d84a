package bootstrap

import "testing"

func TestProgramText(t *testing.T) {
	for name, c := range map[string]struct{ output, want string }{
		"its error alone":     {"berth: the machine has no upgrade", "the machine has no upgrade"},
		"several lines":       {"berth: apt-get: no\nsee the log\n", "apt-get: no\nsee the log"},
		"a warning of sudo":   {"sudo: unable to resolve host m1: unknown\nberth: no", "no"},
		"an error of sudo":    {"sudo: a password is required\n", "sudo: a password is required"},
		"the name in a line":  {"cannot run berth: no", "cannot run berth: no"},
		"a killed program":    {"", ""},
		"a line of its shell": {"sh: 1: /root/berth: not found", "sh: 1: /root/berth: not found"},
	} {
		if got := programText(c.output); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
