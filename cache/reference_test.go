package cache

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// reference is the cache in its plainest form: it keeps facts only, sums them anew for each question, in big integers, and
// matches labels, fields, taints and ports by itself.
type reference struct {
	policy Policy
	nodes  map[string]*api.Node
	pods   map[string]Placement

	doubtful map[string]bool
}

func newReference(p Policy) *reference {
	return &reference{policy: p, nodes: map[string]*api.Node{}, pods: map[string]Placement{}, doubtful: map[string]bool{}}
}

func (r *reference) names() []string {
	var out []string
	for name := range r.nodes {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (r *reference) on(node string) []Placement {
	var out []Placement
	for _, p := range r.pods {
		if p.Node == node {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Placement) int { return strings.Compare(a.UID, b.UID) })
	return out
}

// free sums in big integers and saturates only at the end of use, as the cache promises.
func (r *reference) free(node string, without ...string) map[string]*big.Int {
	used := map[string]*big.Int{}
	for _, p := range r.on(node) {
		if slices.Contains(without, p.UID) {
			continue
		}
		for _, q := range p.Class.Requests {
			if used[q.Resource] == nil {
				used[q.Resource] = new(big.Int)
			}
			used[q.Resource].Add(used[q.Resource], big.NewInt(q.Value))
		}
	}
	most := new(big.Int).SetUint64(1<<63 - 1)
	out := map[string]*big.Int{}
	for _, a := range r.nodes[node].Allocatable {
		out[a.Resource] = big.NewInt(a.Value)
	}
	for name, u := range used {
		if u.Cmp(most) > 0 {
			u = most
		}
		if out[name] == nil {
			out[name] = new(big.Int)
		}
		out[name].Sub(out[name], u)
	}
	return out
}

func (r *reference) outOfSync(node string) bool {
	for name, v := range r.free(node) {
		if v.Sign() < 0 && (!strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/")) {
			return true
		}
	}
	return false
}

// tolerates reports whether a pod tolerates a taint.
func tolerates(spec *v1.PodSpec, t v1.Taint) bool {
	return slices.ContainsFunc(spec.Tolerations, func(o v1.Toleration) bool {
		return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) &&
			(o.Operator == v1.TolerationOpExists || (o.Operator == "" || o.Operator == v1.TolerationOpEqual) && o.Value == t.Value)
	})
}

func (r *reference) admits(c *api.Class, n *api.Node) bool {
	spec := &v1.PodSpec{}
	if spec.Unmarshal(c.Constraints) != nil {
		return false
	}
	tolerated := func(t v1.Taint) bool { return tolerates(spec, t) }
	if n.Unschedulable && !tolerated(v1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}) {
		return false
	}
	for _, t := range n.Taints {
		if (t.Effect == "NoSchedule" || t.Effect == "NoExecute") && !tolerated(t) {
			return false
		}
	}
	for k, v := range spec.NodeSelector {
		if have, ok := n.Labels[k]; !ok || have != v {
			return false
		}
	}
	if spec.Affinity == nil {
		return true
	}
	return slices.ContainsFunc(spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t v1.NodeSelectorTerm) bool {
		return matches(t, n)
	})
}

// matches reports whether a node selector term matches a node.
func matches(t v1.NodeSelectorTerm, n *api.Node) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	for _, e := range t.MatchExpressions {
		have, ok := n.Labels[e.Key]
		in := ok && slices.Contains(e.Values, have)
		switch e.Operator {
		case v1.NodeSelectorOpIn:
			ok = in
		case v1.NodeSelectorOpNotIn:
			ok = !in
		case v1.NodeSelectorOpExists:
		case v1.NodeSelectorOpDoesNotExist:
			ok = !ok
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if len(e.Values) != 1 {
				return false
			}
			a, errA := strconv.ParseInt(have, 10, 64)
			b, errB := strconv.ParseInt(e.Values[0], 10, 64)
			ok = ok && errA == nil && errB == nil && (e.Operator == v1.NodeSelectorOpGt && a > b || e.Operator == v1.NodeSelectorOpLt && a < b)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	for _, f := range t.MatchFields {
		if len(f.Values) != 1 || (f.Operator == v1.NodeSelectorOpIn) != (f.Values[0] == n.Name) {
			return false
		}
	}
	return true
}

func hostPorts(c *api.Class) []v1.ContainerPort {
	spec := &v1.PodSpec{}
	if spec.Unmarshal(c.Constraints) != nil || len(spec.Containers) == 0 {
		return nil
	}
	return spec.Containers[0].Ports
}

func (r *reference) portsFree(c *api.Class, node string, without ...string) bool {
	anywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	protocol := func(p v1.ContainerPort) v1.Protocol {
		if p.Protocol == "" {
			return "TCP"
		}
		return p.Protocol
	}
	for _, pod := range r.on(node) {
		if slices.Contains(without, pod.UID) {
			continue
		}
		for _, a := range hostPorts(pod.Class) {
			for _, b := range hostPorts(c) {
				if a.HostPort == b.HostPort && protocol(a) == protocol(b) && (anywhere(a.HostIP) || anywhere(b.HostIP) || a.HostIP == b.HostIP) {
					return false
				}
			}
		}
	}
	return true
}

// disksConflict is VolumeRestrictions of kube-scheduler, written down as there.
func disksConflict(x, y *api.Class) bool {
	volumes := func(c *api.Class) []v1.Volume {
		spec := &v1.PodSpec{}
		if spec.Unmarshal(c.Constraints) != nil {
			return nil
		}
		return spec.Volumes
	}
	for _, a := range volumes(x) {
		for _, b := range volumes(y) {
			switch {
			case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil && a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID:
				return true
			case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil && a.GCEPersistentDisk.PDName == b.GCEPersistentDisk.PDName:
				if !a.GCEPersistentDisk.ReadOnly || !b.GCEPersistentDisk.ReadOnly {
					return true
				}
			case a.ISCSI != nil && b.ISCSI != nil && a.ISCSI.IQN == b.ISCSI.IQN:
				if !a.ISCSI.ReadOnly || !b.ISCSI.ReadOnly {
					return true
				}
			case a.RBD != nil && b.RBD != nil && a.RBD.RBDPool == b.RBD.RBDPool && a.RBD.RBDImage == b.RBD.RBDImage:
				shared := slices.ContainsFunc(a.RBD.CephMonitors, func(m string) bool { return slices.Contains(b.RBD.CephMonitors, m) })
				if shared && (!a.RBD.ReadOnly || !b.RBD.ReadOnly) {
					return true
				}
			}
		}
	}
	return false
}

func (r *reference) disksFree(c *api.Class, node string, without ...string) bool {
	return !slices.ContainsFunc(r.on(node), func(pod Placement) bool { return !slices.Contains(without, pod.UID) && disksConflict(pod.Class, c) })
}

func (r *reference) fits(c *api.Class, node string, without ...string) bool {
	if r.nodes[node] == nil || !r.admits(c, r.nodes[node]) || r.outOfSync(node) {
		return false
	}
	free := r.free(node, without...)
	for _, q := range c.Requests {
		if q.Value > 0 && (free[q.Resource] == nil || free[q.Resource].Cmp(big.NewInt(q.Value)) < 0) {
			return false
		}
	}
	for _, a := range c.Attach {
		if left, limited := r.attachable(node, a.Resource, without...); limited && a.Value > left {
			return false
		}
	}
	return r.portsFree(c, node, without...) && r.disksFree(c, node, without...) && r.kept(c, node, without...)
}

// attachable is how many further volumes of a driver a node takes.
func (r *reference) attachable(node, driver string, without ...string) (left int64, limited bool) {
	for _, a := range r.nodes[node].Attachable {
		if a.Driver == driver {
			left, limited = a.Limit-a.Used, true
		}
	}
	for _, p := range r.on(node) {
		if !slices.Contains(without, p.UID) {
			left -= p.Class.Attach.Value(driver)
		}
	}
	return left, limited
}

// kept reports whether a pod of a class keeps the distance that it and others ask for.
func (r *reference) kept(c *api.Class, node string, without ...string) bool {
	meets := func(a, b []uint32) bool {
		return slices.ContainsFunc(a, func(g uint32) bool { return slices.Contains(b, g) })
	}
	for _, pod := range r.on(node) {
		if r.nodes[node].Labels[api.LabelHostname] != "" && !slices.Contains(without, pod.UID) && (meets(c.Avoids, pod.Class.In) || meets(c.In, pod.Class.Avoids)) {
			return false
		}
	}
	return !r.doubtful[node] || r.nodes[node].Labels[api.LabelHostname] == "" || len(c.In)+len(c.Avoids) == 0
}

// times is how many pods of a class a node takes that takes one.
func (r *reference) times(c *api.Class, node string) int64 {
	n := int64(math.MaxInt32)
	if len(hostPorts(c)) > 0 || disksConflict(c, c) || slices.ContainsFunc(c.Avoids, func(g uint32) bool { return slices.Contains(c.In, g) }) {
		return 1
	}
	free := r.free(node)
	for _, q := range c.Requests {
		if q.Value > 0 {
			n = min(n, new(big.Int).Quo(free[q.Resource], big.NewInt(q.Value)).Int64())
		}
	}
	for _, a := range c.Attach {
		if left, limited := r.attachable(node, a.Resource); limited {
			n = min(n, left/a.Value)
		}
	}
	return n
}

// never reports whether a class would not even fit an empty cluster.
func (r *reference) never(c *api.Class) bool {
	for _, n := range r.nodes {
		enough := r.admits(c, n)
		for _, q := range c.Requests {
			enough = enough && q.Value <= n.Allocatable.Value(q.Resource)
		}
		for _, a := range n.Attachable {
			enough = enough && c.Attach.Value(a.Driver) <= a.Limit
		}
		if enough {
			return false
		}
	}
	return true
}

// score of a node, less is better: free devices and what is unused of the rest for Pack, as the comment at Cache.rating
// says.
func (r *reference) score(node string) [2]int64 {
	free := r.free(node)
	var out [2]int64
	full := int64(0)
	for _, a := range r.nodes[node].Allocatable {
		if a.Value == 0 {
			continue
		}
		share := new(big.Int)
		if v := free[a.Resource]; v.Sign() > 0 {
			share.Mul(v, big.NewInt(1000)).Div(share, big.NewInt(a.Value))
		}
		full = max(full, 1000-share.Int64())
		switch {
		case strings.Contains(a.Resource, "/"):
			if v := free[a.Resource]; v.Sign() > 0 {
				out[0] = min(out[0]+min(v.Int64(), 65535), 65535)
			}
		case a.Resource != "pods":
			out[1] -= 1000 - share.Int64()
		}
	}
	if r.policy == Spread {
		return [2]int64{full}
	}
	if r.policy == LeastAllocated || r.policy == MostAllocated {
		used, kinds := int64(0), int64(0)
		for _, name := range []string{"cpu", "memory"} {
			if has := r.nodes[node].Allocatable.Value(name); has > 0 {
				share := big.NewInt(max(free[name].Int64(), 0))
				used, kinds = used+1000-share.Mul(share, big.NewInt(1000)).Div(share, big.NewInt(has)).Int64(), kinds+1
			}
		}
		switch {
		case kinds == 0:
			return [2]int64{2000}
		case r.policy == MostAllocated:
			return [2]int64{2000 - 2*used/kinds}
		}
		return [2]int64{2 * used / kinds}
	}
	return out
}

// wished returns what kube-scheduler's plugins for preferred node affinity and for taints count of a node.
func (r *reference) wished(c *api.Class, n *api.Node) (affinity, taints int64) {
	spec := &v1.PodSpec{}
	_ = spec.Unmarshal(c.Constraints)
	for _, t := range n.Taints {
		if t.Effect == v1.TaintEffectPreferNoSchedule && !tolerates(spec, t) {
			taints++
		}
	}
	wishes := &v1.PodSpec{}
	if wishes.Unmarshal(c.Wishes) != nil || wishes.Affinity == nil {
		return 0, taints
	}
	for _, t := range wishes.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if matches(t.Preference, n) {
			affinity += int64(t.Weight)
		}
	}
	return affinity, taints
}

// wishScores returns kube-scheduler's weighted sum for some nodes, normalised over them.
func (r *reference) wishScores(c *api.Class, names []string) map[string]int64 {
	most := [2]int64{}
	for _, name := range names {
		affinity, taints := r.wished(c, r.nodes[name])
		most = [2]int64{max(most[0], affinity), max(most[1], taints)}
	}
	out := map[string]int64{}
	for _, name := range names {
		affinity, taints := r.wished(c, r.nodes[name])
		if most[0] > 0 {
			affinity = 100 * affinity / most[0]
		}
		if most[1] > 0 {
			taints = 100 * taints / most[1]
		}
		out[name] = 2*affinity + 3*(100-taints)
	}
	return out
}

// configured returns the tier that the configuration puts a node into for a class, 0 for a class that has none.
func (r *reference) configured(c *api.Class, n *api.Node) int {
	wishes := &v1.PodSpec{}
	if wishes.Unmarshal(c.Wishes) != nil || wishes.RuntimeClassName == nil {
		return 0
	}
	for _, t := range n.Tiers {
		if t.Class == *wishes.RuntimeClassName {
			return int(t.Tier)
		}
	}
	return 3
}

// bestConfigured returns the best of these tiers that has a node which a class fits, 4 for none.
func (r *reference) bestConfigured(c *api.Class) int {
	best := 4
	for name, n := range r.nodes {
		if r.fits(c, name) {
			best = min(best, r.configured(c, n))
		}
	}
	return best
}

// tiers returns the tier of each node that a class may go to, 0 for the best. If there are more scores than tiers,
// some are skipped. Those of the configuration are never joined.
func (r *reference) tiers(c *api.Class, skip int) map[string]int {
	var allowed, fit []string
	for _, name := range r.names() {
		if r.admits(c, r.nodes[name]) {
			allowed = append(allowed, name)
			if r.fits(c, name) {
				fit = append(fit, name)
			}
		}
	}
	if pinnedByName(c) { // those are compared one by one
		allowed = fit
	}
	type standing struct {
		configured int
		score      int64
	}
	at := map[string]standing{}
	var distinct []standing
	for name, score := range r.wishScores(c, allowed) {
		at[name] = standing{r.configured(c, r.nodes[name]), score}
		distinct = append(distinct, at[name])
	}
	slices.SortFunc(distinct, func(a, b standing) int {
		return cmp.Or(cmp.Compare(a.configured, b.configured), cmp.Compare(b.score, a.score))
	})
	distinct = slices.Compact(distinct)
	number, splits := map[standing]int{}, 0
	for i, s := range distinct {
		switch {
		case i == 0:
		case s.configured != distinct[i-1].configured || pinnedByName(c):
			number[s] = number[distinct[i-1]] + 1
		case i > skip && splits < 3:
			splits++
			number[s] = number[distinct[i-1]] + 1
		default:
			number[s] = number[distinct[i-1]]
		}
	}
	out := map[string]int{}
	for name, s := range at {
		out[name] = number[s]
	}
	return out
}

// pinnedByName reports whether the constraints of a class name its nodes.
func pinnedByName(c *api.Class) bool {
	spec := &v1.PodSpec{}
	return spec.Unmarshal(c.Constraints) == nil && pinsOf(spec) != nil
}

// best returns the tier and the score of the best node.
func (r *reference) best(tiers map[string]int, c *api.Class) (score [3]int64, ok bool) {
	for name := range r.nodes {
		if !r.fits(c, name) {
			continue
		}
		if s := r.rank(tiers, name); !ok || slices.Compare(s[:], score[:]) < 0 {
			score, ok = s, true
		}
	}
	return score, ok
}

func (r *reference) rank(tiers map[string]int, name string) [3]int64 {
	s := r.score(name)
	return [3]int64{int64(tiers[name]), s[0], s[1]}
}

// worstBestVictim is, over all nodes, the worst rank that the best-ranked victim can have.
func (r *reference) worstBestVictim(c *api.Class, rank api.Rank) (worst api.Rank, ok bool) {
	for name := range r.nodes {
		var holds []Placement
		for _, p := range r.on(name) {
			if p.Kind == Hold && rank.Before(p.Rank) {
				holds = append(holds, p)
			}
		}
		slices.SortFunc(holds, func(a, b Placement) int { return b.Rank.Compare(a.Rank) })
		var gone []string
		for _, h := range holds {
			gone = append(gone, h.UID)
			if r.fits(c, name, gone...) {
				if !ok || worst.Before(h.Rank) {
					worst, ok = h.Rank, true
				}
				break
			}
		}
	}
	return worst, ok
}
