package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

// Harass makes attacks one after another, drawn from the seed, each for a few seconds, until the context ends, as a load beside
// others. Then it removes everything in the target's namespace, and returns how often it made each attack. Left out are attacks
// that need more than the ClusterRole edit, and those that put pods on nodes past Basalt. The namespace and the queues of the
// target must exist; admin is for the roles and the end.
func Harass(ctx context.Context, admin *rest.Config, target Target, seed uint64) (made map[string]int, err error) {
	a, err := NewAttacker(ctx, admin, target, seed)
	for err != nil {
		if !wait.For(ctx, time.Second) {
			return nil, err
		}
		a, err = NewAttacker(ctx, admin, target, seed) // the API server may be away
	}
	clients, err := kube.ConnectConfig(admin, "hostile-harness")
	if err != nil {
		return nil, err
	}
	var attacks []Attack
	for _, attack := range Attacks() {
		if attack.Right == "" && !attack.Controllers && !attack.Bypass {
			attacks = append(attacks, attack)
		}
	}
	made = map[string]int{}
	r := rand.New(rand.NewPCG(seed, 0xba5a17))
	for ctx.Err() == nil {
		attack := attacks[r.IntN(len(attacks))]
		made[attack.Name]++
		limited, cancel := context.WithTimeout(ctx, time.Second+time.Duration(r.Int64N(int64(4*time.Second))))
		a.Run(limited, attack)
		<-limited.Done()
		cancel()
		if r.IntN(2) == 0 { // the objects of some stay until the next has begun
			empty(ctx, clients, target.Namespace)
		}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanBy)
	defer cancel()
	for {
		empty(after, clients, target.Namespace)
		left, err := clients.Core.CoreV1().Pods(target.Namespace).List(after, metav1.ListOptions{Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = errors.New("pods are left")
		}
		if err == nil {
			return made, nil
		}
		if !wait.For(after, time.Second) {
			return made, fmt.Errorf("empty namespace %s: %w", target.Namespace, err)
		}
	}
}

// empty deletes what an attacker has made in a namespace, finalizers or not. What does not work now is for the next call.
func empty(ctx context.Context, admin *kube.Clients, namespace string) {
	zero := int64(0)
	now, background := metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.DeletePropagationBackground
	_ = admin.Core.BatchV1().Jobs(namespace).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
	_ = admin.Core.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{})
	_ = admin.Basalt.Delete().Namespace(namespace).Resource("podgroups").Do(ctx).Error()
	_ = admin.Core.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, now, metav1.ListOptions{})
	const none = `{"metadata":{"finalizers":null}}`
	for _, name := range finalized(ctx, admin, "/api/v1", namespace, "pods") {
		_, _ = admin.Core.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(none), metav1.PatchOptions{})
	}
	for _, name := range finalized(ctx, admin, "/apis/"+v1beta1.SchemeGroupVersion.String(), namespace, "podgroups") {
		_ = admin.Basalt.Patch(types.MergePatchType).Namespace(namespace).Resource("podgroups").Name(name).Body([]byte(none)).Do(ctx).Error()
	}
}

// finalized returns the names of the objects that have a finalizer. It reads metadata alone: the objects are large, and the
// status of one of them may be one that cannot be decoded.
func finalized(ctx context.Context, admin *kube.Clients, path, namespace, resource string) (names []string) {
	raw, err := admin.Core.Discovery().RESTClient().Get().AbsPath(path, "namespaces", namespace, resource).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(ctx)
	var list metav1.PartialObjectMetadataList
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	for _, o := range list.Items {
		if len(o.Finalizers) > 0 {
			names = append(names, o.Name)
		}
	}
	return names
}
