// Package local runs a Kubernetes control plane on this machine, for tests, benchmarks and the demo: an etcd and a real
// kube-apiserver, a second etcd as Basalt's control store, on request kube-controller-manager, and Basalt's own processes.
//
// It decides which program runs with which flags, ports, keys and users. It owns the processes that it starts and the folder
// that they write to. It schedules nothing, and it is not a way to run anything that must last: the API server's etcd does
// not even sync its disk.
//
// Invariants:
//   - Everything listens on 127.0.0.1, or in a namespace of its own (package network), with keys and tokens made at each start.
//   - Nothing outlives its starter: every process is a child that the kernel kills when its parent dies (Linux only).
//   - A program that dies or does not become ready is an error that quotes the end of its log.
package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/bench/stage/local/network"
)

// readyWithin is how long one program may take to become ready. An idle machine needs 1 to 6 s; tests share two cores.
const readyWithin = 3 * time.Minute

// Options say what a cluster consists of. The zero value is an API server with its etcd, and a control store.
type Options struct {
	// Root is the repository; found from the working directory or the running program if empty.
	Root string
	// Dir takes data, logs, keys and kubeconfigs. If empty, a temporary folder is made, and removed by Stop.
	Dir string
	// ControllerManager runs kube-controller-manager too: jobs, deployments, namespace deletion, garbage collection.
	// Without it finalizers and owner references do nothing, and the ServiceAccount admission plugin is off.
	ControllerManager bool
	// Installed has Start install Basalt's CRDs, roles and policies, as Install does, and Reset keep them.
	Installed bool
	// Audit makes the API server log every write, and the body of every Binding, to Cluster.AuditLog.
	Audit bool
	// APIServerFlags are added to the API server's, for example --feature-gates.
	APIServerFlags []string
	// ControlStoreMembers is the size of the control store; 1 if 0.
	ControlStoreMembers int
	// Network gives the API server and each member of the control store a network namespace. The caller closes it after
	// Stop. Without it all are here.
	Network *network.Network
	// Basalt is the program that StartShard and StartCoordinator run; bin/basalt if empty.
	Basalt string
}

// Cluster is a running control plane. Its methods are not for concurrent use, except Config, Kubeconfig and the getters.
type Cluster struct {
	opts     Options
	root     string
	dir      string
	ownDir   bool
	users    users
	keys     keys
	apiPlace network.Place
	apiPort  int

	apiStore     *Etcd
	controlStore []*Etcd
	apiServer    *Process
	manager      *Process

	first   map[string][]byte // what the API server's store held when Start returned
	touched bool              // somebody has stopped a server, or could have

	mu         sync.Mutex
	basalts    []*Basalt
	schedulers []*Process        // kube-scheduler
	configs    map[string]string // user -> kubeconfig path
}

// Start starts a control plane and returns when it is ready for work. The context ends the starting, not the cluster. The
// programs must have been built: see Programs.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{opts: o, root: o.Root, dir: o.Dir, configs: map[string]string{}}
	if c.root == "" {
		if c.root, err = Root(); err != nil {
			return nil, err
		}
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "basalt-local-"); err != nil {
			return nil, fmt.Errorf("make state folder: %w", err)
		}
		c.ownDir = true
	} else if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, fmt.Errorf("find state folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	stores, err := c.place()
	if err != nil {
		return nil, err
	}
	if c.keys, err = makeKeys(c.dir, net.ParseIP(c.apiPlace.Host)); err != nil {
		return nil, err
	}
	if c.users, err = makeUsers(c.dir); err != nil {
		return nil, err
	}

	var wg sync.WaitGroup
	var controlErr, apiErr error
	wg.Go(func() {
		c.controlStore, controlErr = StartEtcdMembers(ctx, EtcdOptions{Root: c.root, Dir: c.dir, Name: "control-store", Places: stores})
	})
	c.apiStore, apiErr = StartEtcd(ctx, EtcdOptions{Root: c.root, Dir: c.dir, Name: "api-store", NoSync: true, Places: []network.Place{c.apiPlace}})
	wg.Wait()
	if err := errors.Join(apiErr, controlErr); err != nil {
		return nil, err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, err
	}
	if o.ControllerManager {
		if err := c.startControllerManager(ctx); err != nil {
			return nil, err
		}
	}
	if o.Installed {
		if err := c.Install(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.remember(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// place says where the API server runs with its etcd, and where the members of the control store do.
func (c *Cluster) place() (stores []network.Place, err error) {
	join := func(name string) network.Place {
		p := here
		if c.opts.Network != nil && err == nil {
			p, err = c.opts.Network.Join(name)
		}
		return p
	}
	c.apiPlace = join("api")
	for i := range max(1, c.opts.ControlStoreMembers) {
		stores = append(stores, join(fmt.Sprintf("store-%d", i)))
	}
	return stores, err
}

// Stop ends everything, Basalt's processes first, and waits for it. It reports processes that had died before their time.
// A second Stop does nothing.
func (c *Cluster) Stop() error {
	errs := []error{c.StopBasalt()}
	stop := func(p *Process) { errs = append(errs, stopped(p)) }
	stop(c.manager)
	stop(c.apiServer)
	c.manager, c.apiServer = nil, nil
	for _, e := range append([]*Etcd{c.apiStore}, c.controlStore...) {
		if e != nil {
			stop(e.proc)
		}
	}
	if c.ownDir {
		if err := os.RemoveAll(c.dir); err != nil {
			errs = append(errs, fmt.Errorf("remove state folder: %w", err))
		}
	}
	return errors.Join(errs...)
}

// StopBasalt ends Basalt's processes, and kube-scheduler where it runs, and waits for them. It reports schedulers of
// Kubernetes that had died before their time; how Basalt ended is for its own tests to judge.
func (c *Cluster) StopBasalt() error {
	c.mu.Lock()
	basalts, schedulers := c.basalts, c.schedulers
	c.basalts, c.schedulers = nil, nil
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, b := range basalts {
		wg.Go(func() { _ = b.Stop() })
	}
	wg.Wait()
	var errs []error
	for _, p := range schedulers {
		errs = append(errs, stopped(p))
	}
	return errors.Join(errs...)
}

// stopped stops a process and reports whether it had died before. It may be nil.
func stopped(p *Process) (died error) {
	if p == nil {
		return nil
	}
	if p.Exited() && !p.Stopped() {
		died = p.deathError("died")
	}
	_ = p.Stop()
	return died
}

// UseBasalt names the program that StartShard and StartCoordinator run from now on, as Options.Basalt does.
func (c *Cluster) UseBasalt(program string) { c.opts.Basalt = program }

// Dir is the folder with data, logs, keys and kubeconfigs.
func (c *Cluster) Dir() string { return c.dir }

// Root is the repository that the programs come from.
func (c *Cluster) Root() string { return c.root }

// AuditLog is the path of the API server's audit log: one audit.k8s.io/v1 Event a line. Every line of a request is written
// before its handler ends, so the log is complete when the API server has been stopped.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// ControlStore returns the endpoints of the control store, one a member.
func (c *Cluster) ControlStore() (all []string) {
	for _, e := range c.controlStore {
		all = append(all, e.Endpoints()...)
	}
	return all
}

// ControlStoreMembers gives the members of the control store, to pause one for example.
func (c *Cluster) ControlStoreMembers() []*Etcd {
	c.touched = true
	return c.controlStore
}

// APIServerProcess gives the API server's process; nil while it is stopped.
func (c *Cluster) APIServerProcess() *Process {
	c.touched = true
	return c.apiServer
}

// StopControlStore ends the control store in order; StartControlStore continues with the same data and port.
func (c *Cluster) StopControlStore() error {
	c.touched = true
	var errs []error
	for _, e := range c.controlStore {
		errs = append(errs, e.Stop())
	}
	return errors.Join(errs...)
}

// KillControlStore ends the control store with SIGKILL.
func (c *Cluster) KillControlStore() {
	c.touched = true
	for _, e := range c.controlStore {
		e.Kill()
	}
}

// StartControlStore starts a stopped or killed control store with its data and its port.
func (c *Cluster) StartControlStore(ctx context.Context) error { return startAll(ctx, c.controlStore) }

// Processes returns every running process of the cluster.
func (c *Cluster) Processes() []*Process {
	var all []*Process
	add := func(p *Process) {
		if p != nil && !p.Exited() {
			all = append(all, p)
		}
	}
	if c.apiStore != nil {
		add(c.apiStore.proc)
	}
	for _, e := range c.controlStore {
		add(e.proc)
	}
	add(c.apiServer)
	add(c.manager)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.schedulers {
		add(p)
	}
	for _, b := range c.basalts {
		add(b.Process)
	}
	return all
}

// auditPolicy keeps every write and no read. Bodies are kept where an auditor needs them: a Binding (which node, which UID),
// the status writes of queues (epoch, writer, sequence), and deletions of pods (their preconditions).
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: Request
  verbs: [create]
  resources: [{group: "", resources: [pods/binding, bindings]}]
- level: Request
  verbs: [delete]
  resources: [{group: "", resources: [pods]}]
- level: Request
  resources: [{group: scheduling.basalt.dev, resources: [queues/status]}]
- level: Metadata
`

// StartAPIServer starts the API server, or starts it again after StopAPIServer on the same port and data.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.opts.Audit {
		if err := os.WriteFile(filepath.Join(c.dir, "audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
			return fmt.Errorf("write audit policy: %w", err)
		}
	}
	return onFreePorts(c.apiPort != 0, 1, func(ports []int) error {
		if c.apiPort == 0 || ports != nil {
			c.apiPort = ports[0]
		}
		p, err := startProcess(c.apiServerCommand())
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(c.Config(Admin))
		if err == nil {
			err = p.waitReady(ctx, 0, func(ctx context.Context) error { return answers(ctx, client) })
		}
		if err != nil {
			p.Kill()
			return err
		}
		c.apiServer = p
		return nil
	})
}

// answers asks the API server whether something can be created.
func answers(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	// The server makes its namespaces after it calls itself ready; nothing can be created before.
	_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	return err
}

func (c *Cluster) apiServerCommand() command {
	return command{
		name: "kube-apiserver", path: programPath(c.root, APIServer()), args: c.apiServerFlags(),
		log: filepath.Join(c.dir, "kube-apiserver.log"), namespace: c.apiPlace.Namespace,
	}
}

// SetAPIServerFlags replaces the API server's further flags, for the next time that it starts.
func (c *Cluster) SetAPIServerFlags(flags ...string) {
	c.touched = true
	c.opts.APIServerFlags = flags
}

// StopAPIServer ends the API server in order.
func (c *Cluster) StopAPIServer() error { return c.endAPIServer((*Process).Stop) }

// KillAPIServer ends the API server with SIGKILL.
func (c *Cluster) KillAPIServer() {
	_ = c.endAPIServer(func(p *Process) error { p.Kill(); return nil })
}

func (c *Cluster) endAPIServer(end func(*Process) error) error {
	c.touched = true
	if c.apiServer == nil {
		return nil
	}
	err := end(c.apiServer)
	c.apiServer = nil
	return err
}

func (c *Cluster) apiServerFlags() []string {
	// Nobody here would take off the not-ready taint that TaintNodesByCondition puts on each new node.
	disabled := "TaintNodesByCondition"
	if !c.opts.ControllerManager {
		disabled += ",ServiceAccount" // and nobody would make the ServiceAccount that this plugin asks for
	}
	flags := []string{
		"--etcd-servers=" + c.apiStore.Endpoints()[0],
		"--bind-address=" + c.apiPlace.Host,
		"--advertise-address=" + c.apiPlace.Host,
		fmt.Sprintf("--secure-port=%d", c.apiPort),
		"--endpoint-reconciler-type=none", // a loopback address is refused as an endpoint
		"--tls-cert-file=" + c.keys.serverCert,
		"--tls-private-key-file=" + c.keys.serverKey,
		"--cert-dir=" + c.dir,
		"--token-auth-file=" + c.users.file,
		"--client-ca-file=" + c.keys.ca,
		// What kubeadm sets so that requests can be forwarded to other servers by an APIService.
		"--requestheader-client-ca-file=" + c.keys.frontCA,
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.keys.frontCert,
		"--proxy-client-key-file=" + c.keys.frontKey,
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.keys.serviceAccount,
		"--service-account-signing-key-file=" + c.keys.serviceAccount,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--disable-admission-plugins=" + disabled,
		// So that priority and fairness does not turn a local load away.
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1500",
		"--event-ttl=1h",
		"--shutdown-watch-termination-grace-period=2s", // with 0, an open watch holds the server's end up for a minute
	}
	if c.opts.Audit {
		flags = append(flags,
			"--audit-policy-file="+filepath.Join(c.dir, "audit-policy.yaml"),
			"--audit-log-path="+c.AuditLog(),
			"--audit-log-mode=blocking",   // one write a request; batch mode loses what it holds when the server is killed
			"--audit-log-maxsize=1000000", // megabytes; 0 means 100, and then a second file
		)
	}
	return append(flags, c.opts.APIServerFlags...)
}

func (c *Cluster) startControllerManager(ctx context.Context) error {
	kubeconfig, err := c.Kubeconfig(ControllerManager)
	if err != nil {
		return err
	}
	p, err := startProcess(command{
		name: "kube-controller-manager", path: programPath(c.root, "kube-controller-manager"),
		log: c.managerLog(),
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--secure-port=0", // nobody asks it anything
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + c.keys.serviceAccount,
			"--root-ca-file=" + c.keys.ca,
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
			// Nodes here have no kubelet and renew no lease: what judges nodes by that would empty them. What signs
			// certificates has nothing to do here.
			"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-device-taint-eviction-controller," +
				"-node-ipam-controller," +
				"-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller," +
				"-certificatesigningrequest-cleaner-controller",
		},
	})
	if err != nil {
		return err
	}
	c.manager = p
	client, err := kubernetes.NewForConfig(c.Config(Admin))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	// Pods can be created when their ServiceAccount exists: that is what ready means to a user.
	return p.waitReady(ctx, 0, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (c *Cluster) managerLog() string { return filepath.Join(c.dir, "kube-controller-manager.log") }

// Config returns a client configuration for one of the users of this cluster, without a rate limit. It panics for a name
// that is none of them, which is a mistake of the caller's code.
func (c *Cluster) Config(user string) *rest.Config {
	token, ok := c.users.tokens[user]
	if !ok {
		panic(fmt.Sprintf("local: no user %q", user))
	}
	return &rest.Config{
		Host:            fmt.Sprintf("https://%s:%d", c.apiPlace.Host, c.apiPort),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.keys.caPEM},
		QPS:             -1,
	}
}

// APIStore returns the API server's own etcd.
func (c *Cluster) APIStore() *Etcd {
	c.touched = true
	return c.apiStore
}
