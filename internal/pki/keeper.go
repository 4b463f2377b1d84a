package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// KeeperConfig holds the settings of a keeper.
type KeeperConfig struct {
	// Dir holds ca.crt, self.crt and self.key, as WriteIdentity writes them.
	Dir string
	// Renew trades a request for a new certificate of the same subject. Nil never renews.
	Renew func(ctx context.Context, csrPEM []byte) (certPEM []byte, err error)
	// Hosts, unless empty, are the addresses and names for the certificate of a server. A certificate with others is
	// renewed immediately.
	Hosts []string
	Log   *slog.Logger
	// Now is the wall clock; default time.Now.
	Now func() time.Time
}

// Keeper holds a machine's identity and renews it. All its methods may be called concurrently; the configurations that
// it hands out use the newest certificate for each new connection.
type Keeper struct {
	cfg     KeeperConfig
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[identity]
	// fault is why the last renewal came to nothing; nil points to none.
	fault atomic.Pointer[string]
	// seen is when the certificate that was last read was written; Run alone uses it.
	seen time.Time
}

// OpenKeeper reads the identity of a folder. An expired certificate is no error: Run tries to renew it, and Health says
// what to do.
func OpenKeeper(cfg KeeperConfig) (*Keeper, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := finish(cfg.Dir); err != nil {
		return nil, fmt.Errorf("open the identity: %w", err)
	}
	id, err := readIdentity(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the identity: %w", err)
	}
	k := &Keeper{cfg: cfg, log: cfg.Log, now: cfg.Now}
	k.current.Store(id)
	return k, nil
}

// Subject returns the subject of this machine.
func (k *Keeper) Subject() Subject { return k.current.Load().subject }

// Files returns the paths of the certificate, its key and the authority's certificate. A renewal changes their content.
func (k *Keeper) Files() (cert, key, ca string) {
	return filepath.Join(k.cfg.Dir, certFile), filepath.Join(k.cfg.Dir, keyFile), filepath.Join(k.cfg.Dir, caFile)
}

// CA returns the authority's certificate, in PEM.
func (k *Keeper) CA() []byte { return bytes.Clone(k.current.Load().files[0]) }

// Expires returns when the certificate ends.
func (k *Keeper) Expires() time.Time { return k.current.Load().leaf.NotAfter }

// Health returns nil while the certificate is valid and can be renewed, else a sentence that says what to do. It wraps
// ErrExpired for an expired certificate.
func (k *Keeper) Health() error {
	id, now := k.current.Load(), k.now()
	why := ""
	if f := k.fault.Load(); f != nil {
		why = "; renewing it did not work: " + *f
	}
	switch {
	case now.Before(id.leaf.NotBefore):
		return fmt.Errorf("the certificate of %s is valid only from %s: the clock of this machine (%s) is wrong",
			id.subject, id.leaf.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !now.Before(id.leaf.NotAfter) && id.subject.Role == cluster.RoleServer:
		return fmt.Errorf("%w: %s, on %s%s. If the clock is right, join again with a new token", ErrExpired, id.subject,
			id.leaf.NotAfter.Format(time.RFC3339), why)
	case !now.Before(id.leaf.NotAfter):
		return fmt.Errorf("%w: %s, on %s%s. If the clock is right, join again with a new token (`berth "+
			"token create --join --role %s` on a server makes one); tasks run on meanwhile",
			ErrExpired, id.subject, id.leaf.NotAfter.Format(time.RFC3339), why, id.subject.Role)
	case why != "":
		return fmt.Errorf("the certificate of %s ends on %s%s", id.subject, id.leaf.NotAfter.Format(time.RFC3339), why)
	}
	return nil
}

// ServerTLS returns the configuration of a listener. A client may show no certificate; a shown certificate must be
// signed by the authority. Sessions are not resumed, so each connection is checked again.
func (k *Keeper) ServerTLS() *tls.Config {
	base := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             protocols(),
		ClientAuth:             tls.VerifyClientCertIfGiven,
		SessionTicketsDisabled: true,
		Time:                   k.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return k.current.Load().shown(), nil
		},
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := base.Clone()
		c.GetConfigForClient = nil
		c.ClientCAs = k.current.Load().roots // a new identity may bring another authority
		return c, nil
	}
	return base
}

// ClientTLS returns the configuration of connections to servers: it shows this machine's certificate, and takes no
// other end than a server of the authority, at whatever address.
func (k *Keeper) ClientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return k.current.Load().shown(), nil
		},
		//nolint:gosec // VerifyConnection checks more than the library does
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return checkServer(state, k.current.Load().roots, k.now())
		},
	}
}

// NodeTLS returns the configuration of connections to the API of one node: it shows this machine's certificate, and
// takes no other end than that node of the authority, at whatever address.
func (k *Keeper) NodeTLS(node string) *tls.Config {
	config := k.ClientTLS()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return checkNode(state, k.current.Load().roots, node, k.now())
	}
	return config
}

// shown is the certificate as it is sent: with the authority's, for machines that know only its fingerprint.
func (id *identity) shown() *tls.Certificate {
	return &tls.Certificate{
		Certificate: [][]byte{id.leaf.Raw, id.issuer.Raw},
		PrivateKey:  id.key,
		Leaf:        id.leaf,
	}
}

// Times of renewal.
const (
	// checkInterval is the interval of checks of the wall clock and the folder, because timers notice neither a set
	// clock nor a sleep of the machine. After an error it is retryInterval, because an operator may repair it at any
	// time.
	checkInterval, retryInterval = 15 * time.Minute, 30 * time.Second
	// retryLeast and retryMost bound the time between two tries.
	retryLeast, retryMost = time.Second, time.Hour
	renewTimeout          = time.Minute
)

// Run renews the certificate at two thirds of its life, spread over a tenth of it, so that machines that joined
// together do not renew together. It retries with growing pauses, at least once an hour. It follows the wall clock,
// also when that jumps, and takes a new identity of WriteIdentity within minutes. It returns when ctx ends, with its
// error.
func (k *Keeper) Run(ctx context.Context) error {
	spread := rand.Float64()
	tries := 0
	next := time.Time{} // of the next try, after one that came to nothing
	for {
		if k.reread() {
			tries, next = 0, time.Time{}
		}
		id, now := k.current.Load(), k.now()
		// A clock that was set back must not put the next try off for long.
		if now.Add(2 * retryMost).Before(next) {
			next = now
		}
		due := k.due(id, spread)
		if now.Before(due) && tries > 0 { // the clock was set back to before all that
			tries, next = 0, time.Time{}
			k.fault.Store(nil)
		}
		if k.cfg.Renew != nil && !now.Before(due) && !now.Before(next) {
			err := k.renew(ctx, id)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				tries, next = 0, time.Time{}
				spread = rand.Float64() // drawn once per certificate, because a new value would move the renewal
				k.fault.Store(nil)
				k.log.Info("the certificate was renewed", "subject", id.subject.String(), "expires", k.Expires())
			} else {
				text := err.Error()
				k.fault.Store(&text)
				tries++
				next = k.now().Add(pause.Jitter(pause.Doubled(retryLeast, retryMost, tries), rand.Float64))
				k.log.Warn("the certificate was not renewed", "subject", id.subject.String(), "expires",
					id.leaf.NotAfter, "next_try", next, "error", err)
			}
		}
		if err := k.Health(); errors.Is(err, ErrExpired) && k.cfg.Renew == nil {
			k.log.Error("the certificate has expired", "error", err)
		}
		if err := pause.For(ctx, k.untilNext(spread, next)); err != nil {
			return err
		}
	}
}

// due returns when a certificate is to be renewed.
func (k *Keeper) due(id *identity, spread float64) time.Time {
	life := id.leaf.NotAfter.Sub(id.leaf.NotBefore)
	due := id.leaf.NotBefore.Add(life*2/3 + time.Duration(spread*float64(life/10)))
	if id.subject.Role == cluster.RoleServer && len(k.cfg.Hosts) > 0 && !sameHosts(k.cfg.Hosts, id) {
		return id.leaf.NotBefore // immediately
	}
	return due
}

// sameHosts reports whether a certificate holds just these hosts.
func sameHosts(want []string, id *identity) bool {
	names, ips := splitHosts(want)
	w, h := hostsOf(names, ips), hostsOf(id.leaf.DNSNames, id.leaf.IPAddresses)
	slices.Sort(w)
	slices.Sort(h)
	return slices.Equal(w, h)
}

// untilNext returns the time until the next action, checkInterval at most.
func (k *Keeper) untilNext(spread float64, next time.Time) time.Duration {
	now := k.now()
	at := k.due(k.current.Load(), spread)
	if next.After(at) {
		at = next
	}
	wait := checkInterval
	if k.Health() != nil {
		wait = retryInterval
	}
	if k.cfg.Renew == nil || !at.Before(now.Add(wait)) {
		return wait
	}
	return max(at.Sub(now), 10*time.Millisecond)
}

// renew requests a certificate with a new key, checks it and makes it this machine's.
func (k *Keeper) renew(ctx context.Context, old *identity) error {
	hosts := k.cfg.Hosts
	if len(hosts) == 0 {
		hosts = hostsOf(old.leaf.DNSNames, old.leaf.IPAddresses)
	}
	csr, key, err := NewRequest(old.subject, hosts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	cert, err := k.cfg.Renew(ctx, csr)
	if err != nil {
		return err
	}
	id, err := newIdentity(old.files[0], cert, key)
	switch {
	case err != nil:
		return fmt.Errorf("the new certificate: %w", err)
	case id.subject != old.subject:
		return fmt.Errorf("the new certificate is one of %s, not of %s", id.subject, old.subject)
	case !k.now().Before(id.leaf.NotAfter):
		return errors.New("the new certificate has expired already: the clocks of this machine and of the " +
			"server differ")
	}
	if err := WriteIdentity(k.cfg.Dir, id.files[0], cert, key); err != nil {
		return err
	}
	k.current.Store(id)
	return nil
}

// reread takes an identity that another process wrote into the folder, and reports whether there was one.
func (k *Keeper) reread() bool {
	info, err := os.Stat(filepath.Join(k.cfg.Dir, certFile))
	if err != nil || info.ModTime().Equal(k.seen) {
		return false
	}
	id, err := readIdentity(k.cfg.Dir)
	if err != nil {
		return false // it is being written, or damaged; the identity in memory stays
	}
	k.seen = info.ModTime()
	old := k.current.Load()
	if bytes.Equal(id.files[1], old.files[1]) && bytes.Equal(id.files[0], old.files[0]) {
		return false
	}
	if id.subject != old.subject {
		return false // another machine's; it counts after a restart
	}
	k.current.Store(id)
	k.fault.Store(nil)
	k.log.Info("a new certificate was found", "subject", id.subject.String(), "expires", id.leaf.NotAfter)
	return true
}

// Hosts returns the addresses and names at which this server answers, as its certificate holds them.
func (k *Keeper) Hosts() []string {
	leaf := k.current.Load().leaf
	return hostsOf(leaf.DNSNames, leaf.IPAddresses)
}
