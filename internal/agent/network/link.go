package network

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
)

// route is a route from the node to other machines.
type route struct {
	to     netip.Prefix
	device string
}

// maxDumps is how often the routes are read if they change during the reading.
const maxDumps = 10

// routes returns the node's routes, except the default route and those of a link.
func routes(but string) (list []route, err error) {
	var all []netlink.Route
	for range maxDumps {
		if all, err = netlink.RouteList(nil, netlink.FAMILY_V4); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	for i := range all {
		if all[i].Dst == nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(all[i].Dst.IP.To4())
		bits, _ := all[i].Dst.Mask.Size()
		if !ok || bits == 0 {
			continue
		}
		r := route{to: netip.PrefixFrom(addr, bits)}
		if link, err := netlink.LinkByIndex(all[i].LinkIndex); err == nil {
			r.device = link.Attrs().Name
		}
		if r.device != but {
			list = append(list, r)
		}
	}
	return list, nil
}

// overlap returns a route that overlaps the subnet, "" for none.
func overlap(subnet netip.Prefix, all []route) string {
	for _, r := range all {
		if !r.to.Overlaps(subnet) {
			continue
		}
		by := ""
		if r.device != "" {
			by = " of " + r.device
		}
		return fmt.Sprintf("the subnet %s for tasks overlaps the node's route to %s%s; give the agent "+
			"another with --bridge-subnet", subnet, r.to, by)
	}
	return ""
}

// clash returns why the subnet cannot be used now, "" if it can.
func (s *Spaces) clash() string {
	for _, r := range s.records.all() {
		if r.Subnet != "" && r.Subnet != s.Subnet.String() {
			return fmt.Sprintf("tasks still have addresses of the subnet %s; %s can be used once they have ended",
				r.Subnet, s.Subnet)
		}
	}
	all, err := routes(s.bridge)
	if err != nil {
		return err.Error()
	}
	return overlap(s.Subnet, all)
}

// localRoutes lets packets from the node's own loopback reach published ports behind the bridge. The table blocks all
// other packets of this kind.
func localRoutes(bridge string) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+bridge+"/route_localnet", []byte("1"), 0o600); err != nil {
		return fmt.Errorf("open the bridge to the loopback: %w", err)
	}
	return nil
}

// removeLink removes a link; a missing link is no error.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// makeBridge creates the bridge with its address, unless it exists. The plugin could create it, too. A bridge of the
// plugin loses its hardware address with its last port, and some versions of the plugin then fail.
func makeBridge(name string, subnet netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		attrs := netlink.NewLinkAttrs()
		sum := sha256.Sum256([]byte(name))
		attrs.Name, attrs.HardwareAddr = name, append(net.HardwareAddr{2}, sum[:5]...)
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the bridge: %w", err)
		}
		link, err = netlink.LinkByName(name)
	}
	if err == nil {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: firstAddress(subnet), Mask: net.CIDRMask(subnet.Bits(), 32)}}
		if err = netlink.AddrAdd(link, address); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("make the bridge: %w", err)
	}
	return nil
}

// firstAddress returns the bridge's address in a subnet.
func firstAddress(subnet netip.Prefix) net.IP { return subnet.Addr().Next().AsSlice() }
