package cli

import "testing"

func TestManText(t *testing.T) {
	const help = "Runs *all* of [a].\n\n  berth run   start\n  berth stop  end\n\nCodes:\n  0  done\nSee also b_c.\n"
	const want = "Runs \\*all\\* of \\[a\\].\n\n\n```\n  berth run   start\n  berth stop  end\n```\n\n\nCodes:\n\n" +
		"```\n  0  done\n```\n\nSee also b\\_c."
	if got := manText(help); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
