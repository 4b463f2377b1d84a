package serving

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/storeflags"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/serve/join"
	"github.com/berthd/berth/internal/store"
)

// joinCommand is `berth server join`.
type joinCommand struct {
	*session.Session
	flags     advertisedFlags
	servers   []string
	tokenFile string
	external  bool
	store     storeflags.Flags
}

func newServerJoinCommand(sess *session.Session) *cobra.Command {
	j := &joinCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "join --server https://HOST:7071 --token-file FILE --advertise HOST[:PORT]",
		Short: "Create another server of a control plane",
		Long: "Trades a join token for this server's certificate and writes its settings to an empty data\n" +
			"directory. Then start the server with `berth server`: it copies the store and gets its vote by\n" +
			"itself. If the command is interrupted, run it again with the same token.",
		Args: session.Arguments(0, 0, ""),
		RunE: j.run,
	}
	j.flags.addFlags(cmd)
	cmd.Flags().StringSliceVar(&j.servers, "server", nil,
		"`ADDRESS` of a server, https://HOST:7071; may be given several times")
	cmd.Flags().StringVar(&j.tokenFile, "token-file", "", "`FILE` with the join token")
	cmd.Flags().BoolVar(&j.external, "external-store", false,
		"the servers use an external store: start this server with --store; it does not become a member")
	j.store.AddTo(cmd.Flags())
	return cmd
}

func (j *joinCommand) run(cmd *cobra.Command, _ []string) error {
	var list session.Faults
	want := j.flags.settings(&list)
	j.servers = session.SplitList(j.servers)
	checkServers(&list, j.servers)
	token := ""
	if j.tokenFile == "" {
		list.Add("--token-file is missing: want a file with the output of `berth token create --join " +
			"--role server`")
	} else {
		var err error
		if token, err = datadir.ReadSecret("--token-file", j.tokenFile); err != nil {
			list.Add("%s", session.ErrorText(err))
		}
	}
	j.store.Check(&list)
	if err := list.Err(cmd); err != nil {
		return err
	}
	var err error
	if want.Store, err = j.store.Location.Record(); err != nil {
		return err
	}
	want.External = j.external || want.Store != nil
	return joinServer(cmd.Context(), j.Session, j.flags.dataDir, want, join.Joiner{Servers: j.servers, Token: token})
}

// checkServers adds a fault to list for each address that is no https address.
func checkServers(list *session.Faults, servers []string) {
	if len(servers) == 0 {
		list.Add("--server is missing: want https://HOST:%d of a server", datadir.PortAPI)
	}
	for _, s := range servers {
		host, ok := strings.CutPrefix(s, "https://")
		if !ok {
			list.Add("--server %q: want https://HOST:%d", s, datadir.PortAPI)
			continue
		}
		_, err := session.ParseHostPort(strings.TrimSuffix(host, "/"), datadir.PortAPI)
		list.AddError("--server", err)
	}
}

// joinServer joins a server. Each step accepts a result of an earlier, interrupted run.
func joinServer(ctx context.Context, sess *session.Session, dataDir string, want datadir.Settings,
	j join.Joiner,
) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	// 1. The settings are written last: if they exist, all is done.
	have, err := datadir.ReadSettings(dataDir)
	if err != nil {
		return err
	}
	j.Dir = filepath.Join(dataDir, datadir.PKIDir)
	if have != nil {
		if err := have.CheckSame(want, dataDir); err != nil {
			return err
		}
		return errors.Join(j.Done(), printJoinResult(sess, dataDir, have, true))
	}
	if engines.Exists(filepath.Join(dataDir, datadir.StoreDir)) {
		return &hinted.Error{
			Err:  fmt.Errorf("%s already contains a store, which would be lost by joining another one", dataDir),
			Hint: "Join from an empty data directory.",
		}
	}
	// 2. Get the certificate, the authority and a membership of the store.
	id, err := datadir.ServerID(filepath.Join(dataDir, datadir.IDFile))
	if err != nil {
		return err
	}
	j.Self = pki.Subject{Role: cluster.RoleServer, Name: id}
	j.Hosts, j.Name = want.Hosts(), want.Name
	if !want.External {
		j.PeerURL = want.Peer
	}
	reply, err := j.Join(ctx)
	if err != nil {
		return join.AddHint(err, cluster.RoleServer)
	}
	if err := secrets.Write(dataDir, reply.SecretsKeys); err != nil {
		return err
	}
	// 3. Write the settings with the members to join.
	if len(reply.Members) == 0 {
		want.External = true // the store runs elsewhere, so there is no member to join
	}
	for _, m := range reply.Members {
		want.Join = append(want.Join, store.Member{ID: m.ID, Name: m.Name, PeerURL: m.PeerURL, Learner: m.Learner})
	}
	if err := want.Write(dataDir); err != nil {
		return err
	}
	return errors.Join(j.Done(), printJoinResult(sess, dataDir, &want, false))
}

func printJoinResult(sess *session.Session, dataDir string, s *datadir.Settings, again bool) error {
	if sess.WantsData() {
		return sess.PrintData(s)
	}
	word := "has joined"
	if again {
		word = "had joined already"
	}
	flag := datadir.Flag(dataDir)
	if s.External {
		flag += s.Store.Flags()
	}
	sess.Printf("%s %s; its address is %s", dataDir, word, s.API)
	sess.Printf("Start it:  berth server%s", flag)
	return nil
}
