package server

import (
	"log/slog"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/serve/engines"
)

// Config is the configuration of a server.
type Config struct {
	DataDir string   // has the store, the token, the server's id, its certificates and settings
	Listen  []string // addresses in the form of apiserver.Listen
	// ListenPeers is the host:port for the other members of the store. "" is the advertised port on all interfaces.
	ListenPeers string
	Store       engines.Location
	Snapshots   snapshotConfig
	// KeepDefinitions is how long the leader keeps versions of task definitions that nothing names. 0 is for ever.
	KeepDefinitions time.Duration

	Egress egress.Policy // for gates and for scaling queries
	Traces string        // URL for spans; "" for none
	// MaxWaiters bounds the requests that wait for changes, and MaxClientWaiters those of one client. 0 is the default.
	MaxWaiters, MaxClientWaiters int
	// Machines is how the server reaches passive nodes over SSH.
	Machines MachineAccess
	// CertificateLife is the validity of the certificates that the server signs. 0 is the default.
	CertificateLife time.Duration
	// Permissions are the permissions of clusters that are created without any.
	Permissions []cluster.Permission
	// Values are the settings by flag name, shown to operators. They contain no secrets.
	Values map[string]string
	Log    *slog.Logger
	// Command is the command that started the server, for hints; "" is `berth server`. Notices, unless nil, receives
	// lines for the user.
	Command string
	Notices func(text string)
}

// snapshotConfig configures periodic snapshots. An Every of 0 disables them.
type snapshotConfig struct {
	Every time.Duration
	Keep  int
	Dir   string // the default is the directory snapshots in the data directory
}

// MachineAccess has the keys with which a server reaches machines over SSH. Without a key it reaches none.
type MachineAccess struct {
	// Identities are files with private keys without a passphrase. KnownHosts are files with the keys of machines.
	Identities, KnownHosts []string
}
