package server

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api"
)

// Reduce returns pods as the cores are shown them once the watches have seen all objects of a cluster: stripped as at a relay, and
// with their volume claims looked up. bench/prove/oracle judges by it what a shard makes of a pod.
func Reduce(rules api.Rules, objects []runtime.Object, pods []*corev1.Pod) []*api.Pod {
	c := newClaims(rules, func(*api.Pod) {}, nil)
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.PersistentVolume:
			c.volumes().Seen(stripVolume(o))
		case *corev1.PersistentVolumeClaim:
			c.claims().Seen(stripClaim(o))
		}
	}
	stripped := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		stripped[i] = api.StripPod(p)
	}
	var out []*api.Pod
	c.replaced(stripped, func(list []*api.Pod) { out = list })
	return out
}
