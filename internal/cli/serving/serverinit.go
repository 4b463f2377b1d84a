package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/serve/datadir"
)

// advertisedFlags are the flags of `berth server init` and `join` about the server itself.
type advertisedFlags struct {
	dataDir, name string
	address       string // HOST[:PORT] of the API
	peers         string // HOST[:PORT] of the store's member; the default is the same host
}

func (v *advertisedFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.dataDir, "data-dir", datadir.DefaultDataDir(),
		"folder for all data of the server (default "+datadir.DataDirText+")")
	cmd.Flags().StringVar(&v.address, "advertise", "",
		fmt.Sprintf("`HOST[:PORT]` at which agents, people and other servers reach this server; default "+
			"port %d",
			datadir.PortAPI))
	cmd.Flags().StringVar(&v.peers, "advertise-peers", "",
		fmt.Sprintf("`HOST[:PORT]` for the other members of the store; default the same host, port %d",
			datadir.PortPeers))
	cmd.Flags().StringVar(&v.name, "name", datadir.ServerName(),
		"name of the server (default the host name)")
	session.HideDefaults(cmd, "data-dir", "name")
}

// settings returns the settings that the flags describe, and adds their faults to list.
func (v *advertisedFlags) settings(list *session.Faults) datadir.Settings {
	if !datadir.ValidServerName(v.name) {
		list.Add("--name %q: want lower-case letters, digits, \"-\" and \".\"", v.name)
	}
	if v.address == "" {
		list.Add("--advertise is missing: want the HOST[:PORT] at which other machines reach this one")
		return datadir.Settings{}
	}
	api, err := session.ParseHostPort(v.address, datadir.PortAPI)
	list.AddError("--advertise", err)
	peers := v.peers
	if peers == "" && err == nil {
		host, _, _ := net.SplitHostPort(api) // session.ParseHostPort returned the address
		peers = net.JoinHostPort(host, fmt.Sprint(datadir.PortPeers))
	}
	if err == nil || v.peers != "" {
		peers, err = session.ParseHostPort(peers, datadir.PortPeers)
		list.AddError("--advertise-peers", err)
	}
	if api != "" && api == peers {
		list.Add("--advertise and --advertise-peers are both %s: want two different ports", api)
	}
	return datadir.Settings{Name: v.name, API: "https://" + api, Peer: "https://" + peers}
}

// initCommand is `berth server init`.
type initCommand struct {
	*session.Session
	flags advertisedFlags
}

func newServerInitCommand(sess *session.Session) *cobra.Command {
	i := &initCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "init --advertise HOST[:PORT]",
		Short: "Create the first server: certificate authority, certificate, settings",
		Long: "Prepares a data directory for a server that other machines reach: a certificate authority, this\n" +
			"server's certificate and its settings. An existing store is kept. `berth server` starts the server\n" +
			"afterwards. Running the command again changes nothing; it never overwrites keys. Create the other\n" +
			"servers with `berth server join`.",
		Args: session.Arguments(0, 0, ""),
		RunE: i.run,
	}
	i.flags.addFlags(cmd)
	return cmd
}

func (i *initCommand) run(cmd *cobra.Command, _ []string) error {
	var list session.Faults
	want := i.flags.settings(&list)
	if err := list.Err(cmd); err != nil {
		return err
	}
	return initServer(i.Session, i.flags.dataDir, want)
}

// initServer makes the first server. Each step accepts a result of an earlier, interrupted run.
func initServer(sess *session.Session, dataDir string, want datadir.Settings) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	// 1. Existing settings must equal the wanted ones.
	have, err := datadir.ReadSettings(dataDir)
	if err != nil {
		return err
	}
	if have != nil {
		if err := have.CheckSame(want, dataDir); err != nil {
			return err
		}
	}
	// 2. Make the authority and this server's certificate.
	id, err := datadir.ServerID(filepath.Join(dataDir, datadir.IDFile))
	if err != nil {
		return err
	}
	dir := filepath.Join(dataDir, datadir.PKIDir)
	now := sess.Now()
	if err := pki.CreateAuthority(dir, now); err != nil {
		return err
	}
	authority, err := pki.OpenAuthority(dir)
	if err != nil {
		return err
	}
	if err := signOwnCertificate(dir, authority, id, want.Hosts(), now); err != nil {
		return err
	}
	if _, err := secrets.Open(dataDir); err != nil {
		return err
	}
	// 3. Write the settings last: they make the directory that of a server. An existing store stays.
	if have == nil {
		if want.Store, err = datadir.ReadExternalStore(dataDir); err != nil {
			return err
		}
		want.External = want.Store != nil
		if err := want.Write(dataDir); err != nil {
			return err
		}
	}
	return printInitResult(sess, dataDir, want, authority, have != nil)
}

// signOwnCertificate signs a certificate for the server unless there is one.
func signOwnCertificate(dir string, authority *pki.Authority, id string, hosts []string, now time.Time) error {
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

// printInitResult prints the next steps.
func printInitResult(sess *session.Session, dataDir string, s datadir.Settings, authority *pki.Authority,
	again bool,
) error {
	hash, err := pki.Fingerprint(authority.CertificatePEM())
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(struct {
			Name    string `json:"name"`
			API     string `json:"api"`
			Peer    string `json:"peer"`
			DataDir string `json:"data_dir"`
			CAHash  string `json:"ca_hash"`
			CAFile  string `json:"ca_file"`
		}{s.Name, s.API, s.Peer, dataDir, hash, filepath.Join(dataDir, datadir.PKIDir, "ca.crt")})
	}
	word := "is now"
	if again {
		word = "was already"
	}
	flag := ""
	if dataDir != datadir.DefaultDataDir() {
		flag = " --data-dir " + dataDir
	}
	sess.Printf("%s %s a server, reached at %s", dataDir, word, s.API)
	sess.Printf("CA hash  %s", hash)
	sess.Printf("")
	sess.Printf("Start the server:")
	sess.Printf("  berth server%s", flag)
	sess.Printf("To let another server join, create a token here and copy it to that machine:")
	sess.Printf("  berth token create --join --role server >FILE")
	sess.Printf("  berth server join --server %s --token-file FILE --advertise HOST && berth server", s.API)
	sess.Printf("To let a node join, in the same way:")
	sess.Printf("  berth token create --join --role node >FILE")
	sess.Printf("  berth agent --server %s --join-token-file FILE", s.API)
	sess.Printf("To give people access from other machines, give them a token and %s",
		filepath.Join(dataDir, datadir.PKIDir, "ca.crt"))
	sess.Printf("  berth token create --role operator >FILE")
	sess.Printf("  berth --addr %s --ca-file ca.crt --token-file FILE status", s.API)
	sess.Printf("Keep a copy of %s in a safe place. All servers and nodes trust its holder.",
		filepath.Join(dataDir, datadir.PKIDir, "ca.key"))
	sess.Printf("Also keep a copy of %s, apart from snapshots of the store. Without it nobody can "+
		"read the secrets in them.", filepath.Join(dataDir, secrets.File))
	return nil
}
