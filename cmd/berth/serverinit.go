package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
)

// advertised is what the flags of `berth server init` and `join` say about the server itself.
type advertised struct {
	dataDir, name string
	address       string // HOST[:PORT] of the API
	peers         string // HOST[:PORT] of the store's member; default the same host
}

func (v *advertised) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.dataDir, "data-dir", defaultDataDir(),
		"folder for all that the server keeps (default "+dataDirText+")")
	cmd.Flags().StringVar(&v.address, "advertise", "",
		fmt.Sprintf("`HOST[:PORT]` that agents, people and other servers reach this one at; port %d by default",
			portAPI))
	cmd.Flags().StringVar(&v.peers, "advertise-peers", "",
		fmt.Sprintf("`HOST[:PORT]` for the other members of the store; default the same host, port %d", portPeers))
	cmd.Flags().StringVar(&v.name, "name", serverName(), "name of the server, for people (default the machine's)")
	ofMachine(cmd, "data-dir", "name")
}

// settings returns what the flags say, and notes every fault.
func (v *advertised) settings(list *faults) serverSettings {
	if !validServerName(v.name) {
		list.add("--name %q: want lower-case letters, digits, \"-\" and \".\"", v.name)
	}
	if v.address == "" {
		list.add("--advertise is missing: the HOST[:PORT] that other machines reach this one at")
		return serverSettings{}
	}
	api, err := hostPort(v.address, portAPI)
	list.check("--advertise", err)
	peers := v.peers
	if peers == "" && err == nil {
		host, _, _ := net.SplitHostPort(api) // hostPort made it
		peers = net.JoinHostPort(host, fmt.Sprint(portPeers))
	}
	if err == nil || v.peers != "" {
		peers, err = hostPort(peers, portPeers)
		list.check("--advertise-peers", err)
	}
	if api != "" && api == peers {
		list.add("--advertise and --advertise-peers are both %s: want two ports", api)
	}
	return serverSettings{Name: v.name, API: "https://" + api, Peer: "https://" + peers}
}

// hosts are the names and addresses that a certificate of the server is for.
func (s *serverSettings) hosts() []string {
	hosts := []string{"localhost", "127.0.0.1"}
	for _, text := range []string{s.API, s.Peer} {
		u, err := url.Parse(text)
		if err == nil && !slices.Contains(hosts, u.Hostname()) {
			hosts = append([]string{u.Hostname()}, hosts...)
		}
	}
	return hosts
}

// same demands that settings which stand already are those that are asked for.
func (s *serverSettings) same(want serverSettings, dataDir string) error {
	if s.API == want.API && s.Peer == want.Peer && s.Name == want.Name {
		return nil
	}
	return &hintedError{
		fmt.Errorf("%s is a server already: %s, reached at %s and %s", dataDir, s.Name, s.API, s.Peer),
		"Its certificate and its place in the store are bound to these. To change them, remove the server " +
			"and join it anew from an empty data directory.",
	}
}

func (a *app) newServerInitCommand() *cobra.Command {
	var v advertised
	cmd := &cobra.Command{
		Use:   "init --advertise HOST[:PORT]",
		Short: "Make the first server of several: certificate authority, certificate, settings",
		Long: "Makes a data directory that of a server which other machines reach: a certificate authority, " +
			"this server's certificate and its\n" +
			"settings. A store that is there already is kept. Nothing runs yet: `berth server` starts it. " +
			"Doing it again changes nothing;\n" +
			"keys are never overwritten. The other servers are made with `berth server join`.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list faults
			want := v.settings(&list)
			if err := list.err(cmd); err != nil {
				return err
			}
			return a.initServer(v.dataDir, want)
		},
	}
	v.flags(cmd)
	return cmd
}

// initServer makes what `berth server init` makes. Each step may be found done: one that was interrupted is taken up
// again.
func (a *app) initServer(dataDir string, want serverSettings) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	// 1. What stands there is what is asked for, or nothing.
	have, err := readSettings(dataDir)
	if err != nil {
		return err
	}
	if have != nil {
		if err := have.same(want, dataDir); err != nil {
			return err
		}
	}
	// 2. The authority and this server's certificate.
	id, err := serverID(filepath.Join(dataDir, idFile))
	if err != nil {
		return err
	}
	dir := filepath.Join(dataDir, pkiDir)
	now := a.now()
	if err := pki.CreateAuthority(dir, now); err != nil {
		return err
	}
	authority, err := pki.OpenAuthority(dir)
	if err != nil {
		return err
	}
	if err := ownCertificate(dir, authority, id, want.hosts(), now); err != nil {
		return err
	}
	if have == nil { // a server of an earlier build makes its key when it starts, as the others do
		if _, err := secrets.Create(dataDir); err != nil {
			return err
		}
	}
	// 3. The settings, last: with them it is a server. Where its store ran before, it runs on.
	if have == nil {
		if want.Store, err = readStore(dataDir); err != nil {
			return err
		}
		want.External = want.Store != nil
		if err := want.write(dataDir); err != nil {
			return err
		}
	}
	return a.tellInit(dataDir, want, authority, have != nil)
}

// ownCertificate signs a server's certificate unless there is one.
func ownCertificate(dir string, authority *pki.Authority, id string, hosts []string, now time.Time) error {
	_, err := os.Stat(filepath.Join(dir, "self.crt"))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	self := pki.Subject{Role: cluster.RoleServer, Name: id}
	request, key, err := pki.NewRequest(self, hosts)
	if err != nil {
		return err
	}
	cert, err := authority.Sign(request, self, hosts, now)
	if err != nil {
		return err
	}
	return pki.WriteIdentity(dir, authority.CertificatePEM(), cert, key)
}

// tellInit says what to do next.
func (a *app) tellInit(dataDir string, s serverSettings, authority *pki.Authority, again bool) error {
	hash, err := pki.Fingerprint(authority.CertificatePEM())
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(struct {
			Name    string `json:"name"`
			API     string `json:"api"`
			Peer    string `json:"peer"`
			DataDir string `json:"data_dir"`
			CAHash  string `json:"ca_hash"`
			CAFile  string `json:"ca_file"`
		}{s.Name, s.API, s.Peer, dataDir, hash, filepath.Join(dataDir, pkiDir, "ca.crt")})
	}
	word := "is now"
	if again {
		word = "was already"
	}
	flag := ""
	if dataDir != defaultDataDir() {
		flag = " --data-dir " + dataDir
	}
	a.say("%s %s a server, reached at %s", dataDir, word, s.API)
	a.say("CA hash  %s", hash)
	a.say("")
	a.say("Start it here:")
	a.say("  berth server%s", flag)
	a.say("Let another server join: make a token here, and take it to that machine:")
	a.say("  berth token create --join --role server >FILE")
	a.say("  berth server join --server %s --token-file FILE --advertise HOST && berth server", s.API)
	a.say("Let a node join, the same way:")
	a.say("  berth token create --join --role node >FILE")
	a.say("  berth agent --server %s --join-token-file FILE", s.API)
	a.say("Let people in from elsewhere: give them a token and %s", filepath.Join(dataDir, pkiDir, "ca.crt"))
	a.say("  berth token create --role operator >FILE")
	a.say("  berth --addr %s --ca-file ca.crt --token-file FILE status", s.API)
	a.say("Keep a copy of %s in a safe place: who has it is trusted by all servers and nodes.",
		filepath.Join(dataDir, pkiDir, "ca.key"))
	a.say("Keep a copy of %s as well, apart from snapshots of the store: without it nobody can read the "+
		"secrets in them.", filepath.Join(dataDir, secrets.File))
	return nil
}
