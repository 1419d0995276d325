package chaos

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/hostile"
	"basalt.dev/basalt/bench/stage/local"
)

// hostileTenant is the namespace of the hostile tenant, and its queue; its limit is in cores.
const (
	hostileTenant = "hostile"
	hostileCPU    = 4
)

// restrict makes a queue for the hostile tenant, and keeps it out of the queues of the load.
func (r *run) restrict(ctx context.Context) error {
	_, err := r.kube.Core.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostileTenant}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: hostileTenant}}
	q.Spec.Capability = v1.ResourceList{"cpu": *resource.NewQuantity(hostileCPU, resource.DecimalSI)}
	if err := r.kube.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create queue %s: %w", q.Name, err)
	}
	for _, q := range queues {
		body := fmt.Sprintf(`{"spec":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}`, namespace)
		if err := r.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(q.name).Body([]byte(body)).Do(ctx).Error(); err != nil {
			return fmt.Errorf("restrict queue %s: %w", q.name, err)
		}
	}
	return nil
}

// harass lets a hostile tenant attack until loading ends, and takes away what it has made.
func (r *run) harass(loading context.Context) error {
	var nodes []string
	for i := range nodeCount {
		nodes = append(nodes, fmt.Sprintf("node-%02d", i))
	}
	made, err := hostile.Harass(loading, r.Cluster.Config(local.Admin), hostile.Target{
		Namespace: hostileTenant, Queue: hostileTenant, QueueCPU: hostileCPU * 1000, Shared: hostileTenant, SharedCPU: hostileCPU * 1000,
		Victim: leaves[0].name, Nodes: nodes, NodeCPU: nodeCPU * 1000, Scale: 0.02, Writes: 40,
	}, r.Seed)
	r.result.Attacks = made
	return err
}
