package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/berthd/berth/internal/cluster"
)

// noLogin is the shell of users who do not log in.
const noLogin = "/usr/sbin/nologin"

// account is a line of /etc/passwd or /etc/group.
type account struct {
	name    string
	id, gid int // a group has no gid
	home    string
	shell   string
	members []string // of a group
}

// accounts reads /etc/passwd or /etc/group; lines of another form are skipped.
func (m *Machine) accounts(file string) (all []account, err error) {
	b, err := os.ReadFile(m.path(file))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 {
			continue
		}
		id, err := strconv.Atoi(f[2])
		if err != nil {
			continue
		}
		a := account{name: f[0], id: id}
		if len(f) >= 7 {
			if a.gid, err = strconv.Atoi(f[3]); err != nil {
				continue
			}
			a.home, a.shell = f[5], f[6]
		} else {
			a.members = strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' })
		}
		all = append(all, a)
	}
	return all, nil
}

// find returns the account with a name.
func (m *Machine) find(file, name string) (a account, ok bool, err error) {
	all, err := m.accounts(file)
	i := slices.IndexFunc(all, func(a account) bool { return a.name == name })
	if err != nil || i < 0 {
		return a, false, err
	}
	return all[i], true, nil
}

const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// findOwner returns the numbers of a user and a group; without a group they are those of the user.
func (m *Machine) findOwner(user, group string) (uid, gid int, err error) {
	u, ok, err := m.find(passwdFile, user)
	if err != nil || !ok {
		return 0, 0, cmp.Or(err, fmt.Errorf("the machine has no user %s: list it below users", user))
	}
	if group == "" {
		return u.id, u.gid, nil
	}
	g, ok, err := m.find(groupFile, group)
	if err != nil || !ok {
		return 0, 0, cmp.Or(err, fmt.Errorf("the machine has no group %s: list it below groups of a user", group))
	}
	return u.id, g.id, nil
}

// user is a user of the profile.
type user struct{ spec cluster.ProfileUser }

func (u *user) compare(_ context.Context, m *Machine) ([]Difference, error) {
	s, d := &u.spec, Difference{Item: "user " + u.spec.Name, Is: isMissing, Want: "there"}
	is, ok, err := m.find(passwdFile, s.Name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return []Difference{d}, nil
	}
	var got, want []string
	note := func(what, a, b string) {
		if b != "" && a != b {
			got, want = append(got, what+" "+a), append(want, what+" "+b)
		}
	}
	if s.UID != 0 && is.id != s.UID {
		return nil, fmt.Errorf("user %s: it has the number %d, want %d: a change would orphan its files. Change it by "+
			"hand, or change the profile", s.Name, is.id, s.UID)
	}
	note("home", is.home, s.Home)
	note("shell", is.shell, s.Shell)
	for _, name := range s.Groups {
		g, ok, err := m.find(groupFile, name)
		if err != nil {
			return nil, err
		}
		if !ok || !slices.Contains(g.members, s.Name) && g.id != is.gid {
			got, want = append(got, "not in group "+name), append(want, "in group "+name)
		}
	}
	if len(got) == 0 {
		return nil, nil
	}
	d.Is, d.Want = strings.Join(got, ", "), strings.Join(want, ", ")
	return []Difference{d}, nil
}

// apply makes or changes the user with the programs that every distribution with glibc has.
func (u *user) apply(ctx context.Context, m *Machine) error {
	s := &u.spec
	if !m.hasProgram("useradd") {
		return errors.New("the machine lacks the program useradd (package passwd or shadow)")
	}
	for _, name := range s.Groups {
		if _, ok, err := m.find(groupFile, name); err != nil || ok {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := m.Run(ctx, "groupadd", "--", name); err != nil {
			return err
		}
	}
	_, ok, err := m.find(passwdFile, s.Name)
	if err != nil {
		return err
	}
	var arguments []string
	if s.Home != "" {
		arguments = append(arguments, "--home-dir", s.Home)
	}
	if len(s.Groups) > 0 {
		arguments = append(arguments, "--groups", strings.Join(s.Groups, ","))
	}
	if ok {
		if len(s.Groups) > 0 {
			arguments = append(arguments, "--append")
		}
		if s.Shell != "" {
			arguments = append(arguments, "--shell", s.Shell)
		}
		for i, a := range arguments { // usermod has another name for it
			arguments[i] = strings.Replace(a, "--home-dir", "--home", 1)
		}
		_, err = m.Run(ctx, "usermod", append(arguments, "--", s.Name)...)
		return err
	}
	arguments = append(arguments, "--user-group", "--shell", cmp.Or(s.Shell, noLogin))
	if s.UID != 0 {
		arguments = append(arguments, "--uid", strconv.Itoa(s.UID))
	} else {
		arguments = append(arguments, "--system")
	}
	if s.Home != "" {
		arguments = append(arguments, "--create-home")
	} else {
		arguments = append(arguments, "--no-create-home")
	}
	_, err = m.Run(ctx, "useradd", append(arguments, "--", s.Name)...)
	return err
}

// ownerOf returns the numbers of the user and the group of a file.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}

// modeText returns the permissions of a file with setuid, setgid and sticky, as chmod(1) writes them.
func modeText(mode fs.FileMode) string {
	n := uint32(mode.Perm())
	for bit, in := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&in != 0 {
			n |= bit
		}
	}
	return fmt.Sprintf("%04o", n)
}

// fileMode is the reverse of modeText.
func fileMode(n uint32) fs.FileMode {
	mode := fs.FileMode(n & 0o777)
	for bit, in := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			mode |= in
		}
	}
	return mode
}
