package local

import "path/filepath"

// StartVolcano starts Volcano's controllers, those named in the flag --controllers of theirs. Its scheduler is not started.
func (c *Cluster) StartVolcano(controllers string) (*Process, error) {
	kubeconfig, err := c.Kubeconfig(Admin)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(command{
		name: "vc-controller-manager", path: programPath(c.root, "vc-controller-manager"),
		log: filepath.Join(c.dir, "vc-controller-manager.log"),
		args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=" + controllers, "--leader-elect=false", "--logtostderr", "-v=3",
			"--kube-api-qps=500", "--kube-api-burst=1000",
		},
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.schedulers = append(c.schedulers, p)
	c.mu.Unlock()
	return p, nil
}
