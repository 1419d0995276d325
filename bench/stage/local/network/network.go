// Package network gives processes of a test network namespaces of their own on one bridge, and breaks what lies between
// them: cuts, cuts of one direction, random loss. It needs Linux, root, the program ip, and a kernel with veth, bridge and
// nftables for bridges; New says what is missing.
//
// It decides addresses and names, and owns every namespace that it made. Nothing of the machine's own network changes but
// one interface, through which the starter reaches them all; the rules are in a namespace of their own. What a starter
// that was killed left behind is removed by the next New.
package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Network is a bridge with namespaces on it.
type Network struct {
	prefix string // of the namespaces' names
	subnet int    // 198.18.<subnet>.0/24, from the range that is for benchmarks
	hub    string // the namespace with the bridge

	mu     sync.Mutex
	places map[string]Place
	broken map[Path]int
}

// Place is a namespace.
type Place struct {
	Namespace string
	Host      string // its address
}

// Path is a direction between two places, by their names.
type Path struct{ From, To string }

const folder = "/run/netns"

// New makes a network.
func New() (*Network, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("network namespaces need Linux")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, errors.New("network namespaces need the program ip")
	}
	sweep()
	var err error
	for range 5 { // another run may have the same number
		n := &Network{subnet: 1 + rand.IntN(250), places: map[string]Place{}, broken: map[Path]int{}}
		n.prefix = fmt.Sprintf("basalt-%d-%d-", os.Getpid(), n.subnet)
		n.hub = n.prefix + "hub"
		if err = n.start(); err == nil {
			return n, nil
		}
		n.Close()
	}
	return nil, err
}

func (n *Network) start() error {
	outside := fmt.Sprintf("basalt%d", n.subnet)
	for _, command := range []string{
		"netns add " + n.hub,
		"-n " + n.hub + " link set lo up",
		"-n " + n.hub + " link add bridge type bridge",
		"-n " + n.hub + " link set bridge up",
		"link add " + outside + " type veth peer name outside netns " + n.hub,
		fmt.Sprintf("addr add 198.18.%d.1/24 dev %s", n.subnet, outside),
		"link set " + outside + " up",
		"-n " + n.hub + " link set outside master bridge up",
	} {
		if err := ip(command); err != nil {
			return err
		}
	}
	// Whatever a machine refuses it is to refuse now: places, processes in them, rules.
	probe, err := n.Join("probe")
	if err != nil {
		return err
	}
	if err := ip("netns exec " + probe.Namespace + " ip link"); err != nil {
		return err
	}
	if err := probe.In(func() error { return nil }); err != nil {
		return err
	}
	self := Path{From: "probe", To: "probe"}
	return errors.Join(n.Break(50, self), n.Mend(50, self))
}

func ip(command string) error {
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return nil
}

// Join makes a namespace for a name, or gives the one that it has.
func (n *Network) Join(name string) (Place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.places[name]; ok {
		return p, nil
	}
	i := len(n.places) + 2
	if i > 254 {
		return Place{}, errors.New("join network: it is full")
	}
	p := Place{Namespace: n.prefix + name, Host: fmt.Sprintf("198.18.%d.%d", n.subnet, i)}
	port := fmt.Sprintf("port%d", i)
	for _, command := range []string{
		"netns add " + p.Namespace,
		"-n " + n.hub + " link add " + port + " type veth peer name eth0 netns " + p.Namespace,
		"-n " + n.hub + " link set " + port + " master bridge up",
		"-n " + p.Namespace + " addr add " + p.Host + "/24 dev eth0",
		"-n " + p.Namespace + " link set lo up",
		"-n " + p.Namespace + " link set eth0 up",
	} {
		if err := ip(command); err != nil {
			return Place{}, fmt.Errorf("join network: %w", err)
		}
	}
	n.places[name] = p
	return p, nil
}

// Break loses so many of a hundred packets on every path given, in addition to what is broken already.
func (n *Network) Break(percent int, paths ...Path) error { return n.change(percent, paths) }

// Mend undoes a Break.
func (n *Network) Mend(percent int, paths ...Path) error { return n.change(-percent, paths) }

func (n *Network) change(percent int, paths []Path) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range paths {
		if n.broken[p] += percent; n.broken[p] <= 0 {
			delete(n.broken, p)
		}
	}
	return n.apply()
}

// apply writes the rules, all at once.
func (n *Network) apply() error {
	file, err := os.Open(filepath.Join(folder, n.hub))
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer file.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(file.Fd())))
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyBridge, Name: "basalt"})
	c.FlushTable(table)
	chain := c.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	for path, percent := range n.broken {
		from, to := n.places[path.From], n.places[path.To]
		rule := append(address(12, from.Host), address(16, to.Host)...)
		if percent < 100 {
			rule = append(rule,
				&expr.Numgen{Register: 1, Type: unix.NFT_NG_RANDOM, Modulus: 100},
				&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: binaryutil.NativeEndian.PutUint32(uint32(percent))})
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(rule, &expr.Verdict{Kind: expr.VerdictDrop})})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write rules of nftables: %w", err)
	}
	return nil
}

// address compares an address in the IPv4 header; in other packets something else is there, which is equal to no address.
func address(offset uint32, host string) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: net.ParseIP(host).To4()},
	}
}

// In runs f on a thread that is in the namespace: a socket that f opens stays there. Without a namespace f just runs.
func (p Place) In(f func() error) error {
	if p.Namespace == "" {
		return f()
	}
	there, err := os.Open(filepath.Join(folder, p.Namespace))
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer there.Close()
	done := make(chan error)
	go func() { // never unlocked: the thread ends with the goroutine, and nobody inherits its namespace
		runtime.LockOSThread()
		if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", p.Namespace, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Close removes everything. What runs in the namespaces must have ended.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.places {
		_ = ip("netns del " + p.Namespace)
	}
	_ = ip("netns del " + n.hub) // and with it the interface outside
}

// sweep removes namespaces of starters that are gone.
func sweep() {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), "basalt-")
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if ours && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = ip("netns del " + e.Name())
		}
	}
}
