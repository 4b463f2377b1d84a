package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
)

func (a *app) newServerJoinCommand() *cobra.Command {
	var v advertised
	var servers []string
	var tokenFile string
	var external bool
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "join --server https://HOST:7071 --token-file FILE --advertise HOST[:PORT]",
		Short: "Make another server of a control plane",
		Long: "Trades a join token for this server's certificate and writes its settings to an empty data " +
			"directory. Nothing runs yet: `berth\n" +
			"server` starts it; it copies the store and gets its vote by itself. If it is interrupted, do " +
			"it again with the same token.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list faults
			want := v.settings(&list)
			servers = splitList(servers)
			checkServers(&list, servers)
			token := ""
			if tokenFile == "" {
				list.add("--token-file is missing: a file with what `berth token create --join --role server` printed")
			} else {
				var err error
				if token, err = readSecret("--token-file", tokenFile); err != nil {
					list.add("%s", said(err))
				}
			}
			f.checkStore(&list)
			if err := list.err(cmd); err != nil {
				return err
			}
			var err error
			if want.Store, err = f.store.remembered(); err != nil {
				return err
			}
			want.External = external || want.Store != nil
			return a.joinServer(cmd.Context(), v.dataDir, want, joiner{servers: servers, token: token})
		},
	}
	v.flags(cmd)
	cmd.Flags().StringSliceVar(&servers, "server", nil,
		"`ADDRESS` of a server, https://HOST:7071; may be given several times")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`FILE` with the join token")
	cmd.Flags().BoolVar(&external, "external-store", false,
		"the store runs elsewhere, and --store names it at the start: the server becomes no member of it")
	f.storeFlags(cmd.Flags())
	return cmd
}

// checkServers notes what is wrong with addresses of servers that are reached over https.
func checkServers(list *faults, servers []string) {
	if len(servers) == 0 {
		list.add("--server is missing: https://HOST:%d of a server", portAPI)
	}
	for _, s := range servers {
		host, ok := strings.CutPrefix(s, "https://")
		if !ok {
			list.add("--server %q: want https://HOST:%d", s, portAPI)
			continue
		}
		_, err := hostPort(strings.TrimSuffix(host, "/"), portAPI)
		list.check("--server", err)
	}
}

// joinServer makes what `berth server join` makes. Each step may be found done.
func (a *app) joinServer(ctx context.Context, dataDir string, want serverSettings, j joiner) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	// 1. The settings come last: where they stand, all is done.
	have, err := readSettings(dataDir)
	if err != nil {
		return err
	}
	j.dir = filepath.Join(dataDir, pkiDir)
	if have != nil {
		if err := have.same(want, dataDir); err != nil {
			return err
		}
		return errors.Join(j.done(), a.tellJoined(dataDir, have, true))
	}
	if _, err := os.Stat(filepath.Join(dataDir, storeDir, "member")); err == nil {
		return &hintedError{
			fmt.Errorf("%s holds a store of its own already, which would be lost by joining another", dataDir),
			"Join from an empty data directory.",
		}
	}
	// 2. The certificate, the authority, a place among the store's members.
	id, err := serverID(filepath.Join(dataDir, idFile))
	if err != nil {
		return err
	}
	j.self = pki.Subject{Role: cluster.RoleServer, Name: id}
	j.hosts, j.name = want.hosts(), want.Name
	if !want.External {
		j.peerURL = want.Peer
	}
	reply, err := j.join(ctx)
	if err != nil {
		return joinProblem(err, cluster.RoleServer)
	}
	// servers of earlier builds have one or none; without, it follows from the authority's key
	if keys := cmp.Or(reply.SecretsKeys, reply.SecretsKey); keys != "" {
		if err := secrets.Write(dataDir, keys); err != nil {
			return err
		}
	}
	// 3. The settings, with the members to join.
	if len(reply.Members) == 0 {
		want.External = true // the others hold no store together, so there is none to join and none to begin
	}
	for _, m := range reply.Members {
		want.Join = append(want.Join, store.Member{ID: m.ID, Name: m.Name, PeerURL: m.PeerURL, Learner: m.Learner})
	}
	if err := want.write(dataDir); err != nil {
		return err
	}
	return errors.Join(j.done(), a.tellJoined(dataDir, &want, false))
}

// joinProblem adds what to do about a join that came to nothing.
func joinProblem(err error, role cluster.Role) error {
	create := "`berth token create --join --role " + string(role) + "` on a server makes a new token."
	if e, ok := errors.AsType[*refusedError](err); ok {
		if e.status == 401 || e.status == 403 {
			return &hintedError{err, create}
		}
		return err
	}
	if errors.Is(err, pki.ErrJoinToken) {
		return &hintedError{err, create}
	}
	if hint := tlsHint(err); hint != "" {
		return &hintedError{err, hint}
	}
	return err
}

func (a *app) tellJoined(dataDir string, s *serverSettings, again bool) error {
	if a.data() {
		return a.printData(s)
	}
	word := "has joined"
	if again {
		word = "had joined already"
	}
	flag := dataDirFlag(dataDir)
	if s.External {
		flag += s.Store.flags()
	}
	a.say("%s %s; it will be reached at %s", dataDir, word, s.API)
	a.say("Start it:  berth server%s", flag)
	return nil
}
