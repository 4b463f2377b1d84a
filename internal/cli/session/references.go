package session

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// References in texts. Servers and commands name objects of clusters in full: "prod/service/web", and "prod.web.1.0"
// for a task. What the session prints for people has the short form, see Shorten. A reference that is printed in
// another way stays long, and is right all the same.

// SetHomeCluster fixes the home cluster for the rest of the command. Call it before the command starts goroutines.
func (s *Scope) SetHomeCluster() { s.home = s.homeCluster() }

// homeCluster returns the cluster of names without one in the next command of the user's shell: that of BERTH_CLUSTER
// or the context. Flags of this command do not count, because the user may paste what it prints without them. It writes
// nothing, because goroutines of a command may print at the same time.
func (s *Scope) homeCluster() string {
	if s.home != "" {
		return s.home
	}
	in := strings.TrimSpace(s.Env("BERTH_CLUSTER"))
	if to, err := s.FindTarget(); in == "" && err == nil { // the connection reports the error
		in = to.Cluster
	}
	return cmp.Or(in, cluster.DefaultCluster)
}

// Shorten returns a text in which references to objects and tasks of the shell's cluster omit the cluster. All others
// name it, so each reference names the same object when it is pasted back. With --all-clusters all of them name it.
// Text that looks like no reference stays as it is.
func (s *Scope) Shorten(text string) string {
	if s.AllClusters || s.FullReferences {
		return text
	}
	home := s.homeCluster()
	if !strings.Contains(text, home) {
		return text
	}
	var b strings.Builder
	for text != "" {
		n := strings.IndexFunc(text, isReferenceRune)
		if n < 0 {
			n = len(text)
		}
		b.WriteString(text[:n])
		text = text[n:]
		n = strings.IndexFunc(text, func(r rune) bool { return !isReferenceRune(r) })
		if n < 0 {
			n = len(text)
		}
		b.WriteString(shortReference(home, text[:n]))
		text = text[n:]
	}
	return b.String()
}

// isReferenceRune reports whether a character may be part of a reference, or of a word that is none, such as a path.
func isReferenceRune(r rune) bool {
	return r == '/' || r == '.' || r == '-' || r == '_' || r == '@' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' ||
		'A' <= r && r <= 'Z'
}

// shortReference returns a word without the home cluster if it is a reference to an object or a task there.
func shortReference(home, word string) string {
	kind, id := "", strings.TrimRight(word, ".")
	if own, ok := strings.CutPrefix(id, wording.KindTask+"/"); ok {
		kind, id = wording.KindTask+"/", own
	}
	if p, ok := cluster.TaskID(id).Parts(); ok && p.Cluster == home {
		return kind + strings.TrimPrefix(word[len(kind):], home+".")
	}
	short, ok := strings.CutPrefix(word, home+"/")
	parts := strings.Split(strings.TrimRight(short, "."), "/")
	if ok && len(parts) == 2 && isOwned(parts[0]) && cluster.ValidName(parts[1]) {
		return short
	}
	return word
}

// Argument returns the name of an object for a table of one kind: NAME in the shell's cluster, else CLUSTER/NAME. Like
// Shorten it omits no cluster with --all-clusters.
func (s *Scope) Argument(in, name string) string {
	if in == "" || !s.AllClusters && in == s.homeCluster() {
		return name
	}
	return in + "/" + name
}

// ShortenTable returns a table with short references.
func (s *Scope) ShortenTable(t output.Table) output.Table {
	rows := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = slices.Clone(row)
		for c := range row {
			rows[i][c] = s.Shorten(row[c])
		}
	}
	t.Rows = rows
	return t
}
