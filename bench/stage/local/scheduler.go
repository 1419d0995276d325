package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// SchedulerName is what pods for kube-scheduler name.
const SchedulerName = "default-scheduler"

// StartScheduler starts kube-scheduler as it comes, but with the clients' rates that are given: of a client that the server
// alone limits, qps is -1. Its flags are added. It returns at once: who wants to know whether it schedules gives it a pod.
func (c *Cluster) StartScheduler(_ context.Context, qps, burst int, flags ...string) (*Process, error) {
	kubeconfig, err := c.Kubeconfig(Scheduler)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(c.dir, "kube-scheduler.yaml")
	config := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: %d, burst: %d, contentType: application/vnd.kubernetes.protobuf}
`, kubeconfig, qps, burst)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of kube-scheduler: %w", err)
	}
	return c.startBeside("kube-scheduler", append([]string{"--config=" + path, "--secure-port=0"}, flags...)...) // nobody asks it anything
}

// startBeside starts a program of others, which ends with the cluster before the API server does.
func (c *Cluster) startBeside(name string, args ...string) (*Process, error) {
	p, err := startProcess(command{name: name, path: programPath(c.root, name), log: filepath.Join(c.dir, name+".log"), args: args})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.schedulers = append(c.schedulers, p)
	c.mu.Unlock()
	return p, nil
}
