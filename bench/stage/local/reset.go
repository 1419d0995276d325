package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
)

// Reset makes the cluster as Start returned it, in much less time than a new one takes: Basalt's processes and
// schedulers end, the control store is another one, and the API server holds what it held at first. That goes past the
// API server, so nothing is asked for a grace period, and no finalizer holds anything up. The audit log is emptied;
// versions go on growing, and so does the log of the API server. What controllers of Kubernetes keep in namespaces of
// their own stays, and so do roles and bindings whose names begin with "system:": they make some of these after their
// start.
// A controller that is slow to see a namespace go may leave in it what it keeps in every one (kube-root-ca.crt,
// default).
//
// Reset refuses a cluster whose API server or control store
// somebody has stopped, or that has a network of its own, and reports processes that had died. After an error the
// cluster can only be stopped.
func (c *Cluster) Reset(ctx context.Context) error {
	if !c.Untouched() || c.opts.Network != nil || len(c.controlStore) != 1 {
		return errors.New("reset the cluster: somebody has stopped a part of it, or it has more than one machine")
	}
	if err := c.StopBasalt(); err != nil {
		return err
	}
	for _, p := range []*Process{c.apiServer, c.manager, c.apiStore.proc, c.controlStore[0].proc} {
		if p != nil && p.Exited() {
			return p.deathError("died")
		}
	}
	old := c.controlStore[0]
	if err := errors.Join(old.Stop(), os.RemoveAll(old.DataDir()), c.removeLogs(), c.emptyAuditLog()); err != nil {
		return fmt.Errorf("reset the cluster: %w", err)
	}
	fresh, err := StartEtcd(ctx, EtcdOptions{Root: c.root, Dir: c.dir, Name: "control-store"})
	if err != nil {
		return err
	}
	c.controlStore = []*Etcd{fresh}
	if err := c.restore(ctx); err != nil {
		return fmt.Errorf("reset the cluster: %w", err)
	}
	return nil
}

// Pause stops the control plane's processes where they are, so that one that nobody uses costs nothing. Resume lets
// them go on; Stop ends them in either case.
func (c *Cluster) Pause() error {
	var err error
	for _, p := range slices.Backward(c.Processes()) { // clients first
		err = errors.Join(err, p.Signal(syscall.SIGSTOP))
	}
	return err
}

// Resume ends a Pause and returns when the API server answers. Connections between the processes live on, or are made
// again.
func (c *Cluster) Resume(ctx context.Context) error {
	for _, p := range c.Processes() {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return fmt.Errorf("resume %s: %w", p.Name(), err)
		}
	}
	client, err := kubernetes.NewForConfig(c.Config(Admin))
	if err != nil {
		return err
	}
	return c.apiServer.waitReady(ctx, 0, func(ctx context.Context) error { return answers(ctx, client) })
}

// Untouched reports whether all servers of the cluster run, and nobody has stopped one, or could have.
func (c *Cluster) Untouched() bool { return !c.touched && c.apiServer != nil }

// removeLogs removes what Basalt's processes have written: the next ones may have the same names.
func (c *Cluster) removeLogs() error {
	files, err := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, file := range files {
		switch filepath.Base(file) {
		case "kube-apiserver.log", "kube-controller-manager.log", "api-store.log", "audit.log":
		default:
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// emptyAuditLog takes from the audit log what it holds. The API server appends to it.
func (c *Cluster) emptyAuditLog() error {
	if !c.opts.Audit {
		return nil
	}
	return os.Truncate(c.AuditLog(), 0)
}

const registry = "/registry/"

// withAPIStore calls do with a client of the API server's store.
func (c *Cluster) withAPIStore(do func(*clientv3.Client) error) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.apiStore.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}

// remember keeps what the API server holds now, for Reset.
func (c *Cluster) remember(ctx context.Context) error {
	return c.withAPIStore(func(client *clientv3.Client) error {
		all, err := client.Get(ctx, registry, clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("read what the API server holds: %w", err)
		}
		c.first = map[string][]byte{}
		for _, kv := range all.Kvs {
			c.first[string(kv.Key)] = kv.Value
		}
		return nil
	})
}

// restore gives the API server back what remember kept. Namespaces go first: a controller makes what it keeps in one
// again as soon as it sees it gone, unless the API server knows that the namespace is gone, too. What was made in
// between goes in a second turn.
func (c *Cluster) restore(ctx context.Context) error {
	return c.withAPIStore(func(client *clientv3.Client) error {
		for range 2 {
			if err := c.restoreOnce(ctx, client); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Cluster) restoreOnce(ctx context.Context, client *clientv3.Client) error {
	all, err := client.Get(ctx, registry, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	slices.SortStableFunc(all.Kvs, func(a, b *mvccpb.KeyValue) int {
		return cmp.Compare(namespacesFirst(string(a.Key)), namespacesFirst(string(b.Key)))
	})
	missing := maps.Clone(c.first)
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		delete(missing, key)
		if controllers(key) {
			continue
		}
		value, was := c.first[key]
		switch {
		case !was:
			_, err = client.Delete(ctx, key)
		case !bytes.Equal(value, kv.Value):
			_, err = client.Put(ctx, key, string(value))
		}
		if err != nil {
			return err
		}
	}
	for key, value := range missing {
		if controllers(key) {
			continue
		}
		if _, err := client.Put(ctx, key, string(value)); err != nil {
			return err
		}
	}
	return nil
}

func namespacesFirst(key string) int {
	if strings.HasPrefix(key, registry+"namespaces/") {
		return 0
	}
	return 1
}

// controllers reports whether a key of the API server's store is its own, or that of a controller of Kubernetes.
func controllers(key string) bool {
	for _, rights := range []string{"/roles/kube-system/", "/rolebindings/kube-system/"} {
		if _, name, is := strings.Cut(key, rights); is {
			return strings.HasPrefix(name, "system:") // others are installed with what they are for
		}
	}
	for _, part := range []string{
		"/kube-system/", "/kube-public/", "/namespaces/kube-", "/clusterroles/system:", "/clusterrolebindings/system:",
		"/masterleases/", "/ranges/", "/servicecidrs/", "/ipaddresses/",
	} {
		if strings.Contains(key, part) {
			return true
		}
	}
	// Of every namespace, controllers make and renew these two. A test's own namespace goes, and they with it.
	return strings.HasSuffix(key, "/configmaps/default/kube-root-ca.crt") ||
		strings.HasSuffix(key, "/serviceaccounts/default/default")
}
