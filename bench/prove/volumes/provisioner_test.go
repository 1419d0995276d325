package volumes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	driver       = "made.example.com"
	pool         = "pooled.example.com"
	few          = "few.example.com"
	selectedNode = "volume.kubernetes.io/selected-node"
)

// provisioner makes a volume for each claim that is annotated with a node, or, one time in five, takes the annotation off.
type provisioner struct {
	client       kubernetes.Interface
	made, failed atomic.Int64
	misled       atomic.Int64 // volumes that are on another node than was asked for

	mu   sync.Mutex
	rand *rand.Rand
	held map[string]bool // claims whose names begin so are left alone,
	no   map[string]bool // or refused,
	far  map[string]bool // or get their volume on another node,
	sure map[string]bool // or get it in any case
	busy map[types.UID]bool
}

func newProvisioner(client kubernetes.Interface) *provisioner {
	return &provisioner{client: client, rand: rand.New(rand.NewPCG(1, 2)), held: map[string]bool{}, no: map[string]bool{}, far: map[string]bool{}, sure: map[string]bool{}, busy: map[types.UID]bool{}}
}

func (p *provisioner) hold(prefix string)    { p.set(p.held, prefix, true) }
func (p *provisioner) refuse(prefix string)  { p.set(p.no, prefix, true); p.set(p.held, prefix, false) }
func (p *provisioner) trust(prefix string)   { p.set(p.sure, prefix, true) }
func (p *provisioner) mislead(prefix string) { p.set(p.far, prefix, true) }
func (p *provisioner) release(prefix string) {
	p.set(p.held, prefix, false)
	p.set(p.no, prefix, false)
}

func (p *provisioner) set(in map[string]bool, prefix string, to bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in[prefix] = to
}

func (p *provisioner) random(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rand.IntN(n)
}

func named(in map[string]bool, name string) bool {
	for prefix, is := range in {
		if is && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// run looks at all claims again and again.
func (p *provisioner) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		list, err := p.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			c := &list.Items[i]
			if node := c.Annotations[selectedNode]; node == "" || c.Spec.VolumeName != "" || c.DeletionTimestamp != nil || !slices.Contains([]string{class, limited, fewer, fleeting}, *c.Spec.StorageClassName) {
				continue
			}
			p.mu.Lock()
			begin := !p.busy[c.UID] && !named(p.held, c.Name)
			if begin {
				p.busy[c.UID] = true
			}
			no := named(p.no, c.Name) || p.rand.IntN(5) == 0 && !named(p.sure, c.Name)
			p.mu.Unlock()
			if begin {
				wg.Go(func() { p.serve(ctx, c, no) })
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Millisecond):
		}
	}
	return nil
}

func (p *provisioner) serve(ctx context.Context, c *corev1.PersistentVolumeClaim, no bool) {
	done := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, c.UID)
	}
	// The list may be older than the last try: a provisioner waits a second or more before the next, and does not begin
	// for a node that the claim does not name any more. One that has begun does not stop.
	now, err := p.client.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil || now.UID != c.UID || now.Annotations[selectedNode] != c.Annotations[selectedNode] {
		done()
		return
	}
	time.Sleep(time.Duration(20+p.random(200)) * time.Millisecond)
	node := c.Annotations[selectedNode]
	if no {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:null}}}`, c.UID, selectedNode)
		_, err := p.client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			p.failed.Add(1)
		}
		done()
		return
	}
	p.mu.Lock()
	if named(p.far, c.Name) {
		p.misled.Add(1)
		node = "node-8"
		if c.Annotations[selectedNode] == node {
			node = "node-7"
		}
	}
	p.mu.Unlock()
	v := volumeOn("pvc-"+string(c.UID), *c.Spec.StorageClassName, c.Spec.Resources.Requests["storage"], node)
	v.Spec.AccessModes = c.Spec.AccessModes
	v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": driver}
	v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v.Name}
	if v.Spec.StorageClassName == fewer {
		v.Spec.CSI.Driver = few
	}
	if _, err := p.client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil {
		done()
		return
	}
	p.made.Add(1)
	// It stays busy: the claim has its volume.
}

// volumeOn is a volume of one node, without a source.
func volumeOn(name, class string, size resource.Quantity, node string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{"storage": size}
	v.Spec.StorageClassName = class
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	return v
}
