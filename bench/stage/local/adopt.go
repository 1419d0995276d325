package local

import (
	"os"
	"os/exec"
	"time"
)

// Handle is what another process on this machine needs to use a cluster that this one owns, see Adopt.
type Handle struct {
	Options      Options
	Root, Dir    string
	APIPort      int
	CA           []byte // certificates in PEM
	Tokens       map[string]string
	APIServer    int // process ids
	Manager      int // 0 if there is none
	APIStore     EtcdHandle
	ControlStore EtcdHandle
}

// EtcdHandle is an etcd of one member, for another process.
type EtcdHandle struct {
	Options      EtcdOptions
	Member       string
	Client, Peer int // ports
	Initial      string
	Pid          int
}

// Handle describes the cluster. It has one control store and no network of its own.
func (c *Cluster) Handle() Handle {
	h := Handle{
		Options: c.opts, Root: c.root, Dir: c.dir, APIPort: c.apiPort, CA: c.keys.caPEM, Tokens: c.users.tokens,
		APIServer: c.apiServer.Pid(), APIStore: c.apiStore.handle(), ControlStore: c.controlStore[0].handle(),
	}
	if c.manager != nil {
		h.Manager = c.manager.Pid()
	}
	return h
}

// Adopt returns the cluster of a handle, for this process to use. Its servers stay its owner's children: they can be
// paused, stopped and started here, and Untouched tells the owner whether that could have happened. Basalt's processes
// are children of this one.
func Adopt(h Handle) (*Cluster, error) {
	c := &Cluster{
		opts: h.Options, root: h.Root, dir: h.Dir, apiPlace: here, apiPort: h.APIPort, configs: map[string]string{},
		keys: keysIn(h.Dir), users: users{file: tokenFile(h.Dir), tokens: h.Tokens},
	}
	c.keys.caPEM = h.CA
	control, err := h.ControlStore.adopt()
	if err != nil {
		return nil, err
	}
	c.controlStore = []*Etcd{control}
	if c.apiStore, err = h.APIStore.adopt(); err != nil {
		return nil, err
	}
	if c.apiServer, err = adoptProcess(c.apiServerCommand(), h.APIServer); err != nil || h.Manager == 0 {
		return c, err
	}
	c.manager, err = adoptProcess(command{name: "kube-controller-manager", log: c.managerLog()}, h.Manager)
	return c, err
}

func (e *Etcd) handle() EtcdHandle {
	return EtcdHandle{e.opts, e.member, e.client, e.peer, e.initial, e.proc.Pid()}
}

func (h EtcdHandle) adopt() (_ *Etcd, err error) {
	e := &Etcd{opts: h.Options, place: here, member: h.Member, client: h.Client, peer: h.Peer, initial: h.Initial}
	e.proc, err = adoptProcess(e.command(), h.Pid)
	return e, err
}

// adoptProcess takes over a process that another one has started, which is to reap it.
func adoptProcess(c command, pid int) (*Process, error) {
	running, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	p := newProcess(c)
	p.cmd, p.exited, p.starts = &exec.Cmd{Process: running}, make(chan struct{}), 1
	go p.keep(func() error {
		for running.Signal(noSignal) == nil {
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	return p, nil
}
