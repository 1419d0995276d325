package audit

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// queueObject is a Queue as the API server shows it.
type queueObject struct {
	uid                             string
	readable                        bool // all of it that limits come from
	capability, guarantee, deserved api.Resources
	weight, priority                int32
	policy                          policy
	selector                        string
	closed                          bool
	settled                         bool // it has its finalizer, and neither is going nor says of itself that its limits cannot come into force
	charged                         api.Resources
	admitted                        int
	stated                          bool     // it has a status that can be compared
	users                           []string // spec.userLimits, an entry a line
}

// mostNames bounds the resources of a status that is compared: one with more may leave some out.
const mostNames = 48

func (a *Auditor) queuesReplaced(queues []*v1beta1.Queue) {
	there := map[string]bool{}
	for _, q := range queues {
		there[q.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(a.cluster.queues)) {
		if !there[name] {
			a.queueGone(name, a.cluster.queues[name].uid)
		}
	}
	for _, q := range queues {
		a.queueSeen(q)
	}
}

func (a *Auditor) queueGone(name, uid string) {
	delete(a.cluster.stamps, "queue "+name+" "+uid)
	if o := a.cluster.queues[name]; o != nil && o.uid == uid {
		delete(a.cluster.queues, name)
		delete(a.lasting, specKey(name))
		delete(a.lasting, sumsKey(name))
	}
}

func (a *Auditor) queueSeen(q *v1beta1.Queue) {
	if named := q.Labels[api.LabelVolcanoQueue]; named != "" && !a.cluster.standIns[[2]string{q.Name, named}] {
		a.cluster.standIns[[2]string{q.Name, named}] = true
		for _, uid := range slices.Sorted(maps.Keys(a.cluster.gangs)) {
			if g := a.cluster.gangs[uid]; g.kind == api.VolcanoGroup && g.queue == named {
				a.judgeGang(g)
			}
		}
	}
	o := &queueObject{uid: string(q.UID), closed: q.Spec.Closed, readable: true}
	read := func(l v1.ResourceList) api.Resources {
		out, ok := a.limitsOf(l)
		o.readable = o.readable && ok
		return out
	}
	o.capability, o.guarantee, o.deserved = read(q.Spec.Capability), read(q.Spec.Guarantee), read(q.Spec.Deserved)
	for _, l := range q.Spec.UserLimits {
		o.users = append(o.users, userLine(l.Users, l.Groups, l.Each, read(l.Capability)))
	}
	if o.weight, o.priority = 1, q.Spec.Priority; q.Spec.Weight != nil {
		o.weight = *q.Spec.Weight
	}
	policy, ok := policyOf(&q.Spec)
	o.policy, o.readable = policy, o.readable && ok
	if s := q.Spec.NamespaceSelector; s != nil {
		b, err := s.Marshal()
		o.selector, o.readable = string(b), o.readable && err == nil
	}
	o.settled = q.DeletionTimestamp == nil && slices.Contains(q.Finalizers, v1beta1.FinalizerCharged)
	if s := q.Status; s != nil {
		a.stamped("queue "+q.Name+" "+string(q.UID), s.Stamp, s, q.ResourceVersion)
		if c := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionReady); c != nil && (c.Reason == v1beta1.ReasonInvalid || c.Reason == v1beta1.ReasonUnprotected) {
			o.settled = false // it tells its user, which is what is asked of it
		}
		var ok bool
		o.charged, ok = a.limitsOf(s.Charged)
		o.stated, o.admitted = ok && len(s.Charged) < mostNames, int(s.AdmittedGangs)
	}
	a.cluster.queues[q.Name] = o
}

// limitsOf reads amounts that have to be whole units, and reports whether they are.
func (a *Auditor) limitsOf(l v1.ResourceList) (out api.Resources, ok bool) {
	for name, q := range l {
		if a.cfg.Ignore[string(name)] {
			continue
		}
		x, readable := exact(q)
		if !readable || new(big.Int).Rem(x, unit(string(name))).Sign() != 0 {
			return nil, false
		}
		n := amount(string(name), x)
		if n.Cmp(big.NewInt(api.MaxAmount)) > 0 && !n.IsInt64() {
			return nil, false
		}
		out = append(out, api.Amount{Resource: string(name), Value: n.Int64()})
	}
	slices.SortFunc(out, func(a, b api.Amount) int { return cmp.Compare(a.Resource, b.Resource) })
	return out, true
}

func specKey(queue string) lastingKey { return lastingKey{Limits, "queue " + queue, "limits"} }

func sumsKey(queue string) lastingKey { return lastingKey{Status, "queue " + queue, "sums"} }

// judgeQueues compares each Queue with the limits in force, and its status with the sums. Both follow in their own time,
// and only while a coordinator leads.
func (a *Auditor) judgeQueues() {
	leads := a.store.leader() != 0 && a.now.Sub(a.store.led) > a.cfg.Grace
	for _, name := range slices.Sorted(maps.Keys(a.cluster.queues)) {
		o, q := a.cluster.queues[name], a.store.queue(name)
		differs := ""
		switch {
		case !leads || !o.settled || !o.readable:
		case !q.limited:
			differs = "no limits are in force"
		case q.uid != o.uid:
			differs = "the limits in force are those of an earlier Queue of its name"
		case !sameLimits(q.limits, o.capability):
			differs = fmt.Sprintf("the capability is {%s}, in force is {%s}", o.capability, q.limits)
		case !q.guarantee.Equal(o.guarantee):
			differs = fmt.Sprintf("the guarantee is {%s}, in force is {%s}", o.guarantee, q.guarantee)
		case !sameLimits(q.deserved, o.deserved):
			differs = fmt.Sprintf("deserved is {%s}, in force is {%s}", o.deserved, q.deserved)
		case q.weight != o.weight || q.priority != o.priority:
			differs = fmt.Sprintf("the weight is %d and the priority %d, in force are %d and %d", o.weight, o.priority, q.weight, q.priority)
		case q.policy != o.policy:
			differs = fmt.Sprintf("the policy is %s, in force is %s", o.policy, q.policy)
		case q.closed != o.closed:
			differs = fmt.Sprintf("spec.closed is %t, in force is %t", o.closed, q.closed)
		case !slices.Equal(q.userLines(), o.users):
			differs = fmt.Sprintf("the limits of users are %q, in force are %q", o.users, q.userLines())
		case q.selector != o.selector:
			differs = "the namespaceSelector in force is another than that of the Queue"
		}
		a.lasts(specKey(name), differs != "", a.cfg.Grace, func(since time.Time) {
			a.storeViolation(Limits, "queue "+name, []int64{a.revision}, "%s since %s", differs, since.Format(clock))
		})
		a.lasts(sumsKey(name), leads && o.stated && !q.hadSum(words(o.charged, o.admitted), a.now.Add(-a.cfg.Grace)), a.cfg.Grace, func(since time.Time) {
			a.violate(Violation{Kind: Status, Object: "queue " + name, Revisions: []int64{a.revision}, Message: fmt.Sprintf(
				"its status says that {%s} are charged and %d gangs admitted, and the reservations come to {%s} and %d, since %s",
				o.charged, o.admitted, q.reserved.Add(q.forced), q.admitted, since.Format(clock))})
		})
	}
}

// sameLimits compares limits: a resource that is not named is not limited, which is not the same as a limit of zero.
func sameLimits(r, o api.Resources) bool { return slices.Equal(r, o) }

// judgeGuarantees judges that the grants of a revision took nothing that is kept free for another queue. What a queue may
// count on is its own guarantee, or its children's together where it says nothing; where one is cut, nothing is judged.
// A change of limits, and pods that are bound already, are charged whatever is guaranteed. Whether pods were bound before the
// grant is known only when their watch has come so far: see admitted.
func (a *Auditor) judgeGuarantees(e StoreRevision, touched map[*queue]bool) {
	judgeUsers(a, e, a.grown)
	grew, forced := map[string]api.Resources{}, e.Snapshot // by leaf: what reservations grew by
	var gangs []*gang
	for _, g := range a.grown {
		grew[g.queue] = grew[g.queue].Add(g.by)
		forced = forced || g.forced
		gangs = append(gangs, g.gang)
	}
	a.grown = a.grown[:0]
	for q := range touched {
		forced = forced || q.relimited
		q.relimited = false
	}
	if forced || len(grew) == 0 {
		return
	}
	a.judgeBorrowing(e, gangs)
	if !a.store.guaranteed() {
		return
	}
	names := map[string]bool{}
	for _, by := range grew {
		for _, x := range by {
			if x.Value > 0 {
				names[x.Resource] = true
			}
		}
	}
	children := map[string][]string{}
	for path := range a.store.queues {
		if parent := api.Parent(path); parent != "" {
			children[parent] = append(children[parent], path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a.judgeGuarantee(e, name, children, grew, gangs)
	}
}

// judgeUsers judges I28: that gangs were admitted within what queues let their users have. What is bound already is
// charged whatever users may have, so what a gang that runs has more is not judged.
func judgeUsers(a *Auditor, e StoreRevision, grown []growth) {
	for _, g := range grown {
		r := g.gang.reservation
		if r == nil || g.forced || e.Snapshot {
			continue
		}
		for _, path := range api.Lineage(r.queue) {
			q := a.store.queue(path)
			subject, limit := limitOf(q.users, r)
			if len(limit) == 0 {
				continue
			}
			var theirs []api.Resources
			for _, o := range a.store.reservations {
				if of, _ := limitOf(q.users, o); of == subject && !o.forced && api.Under(o.queue, path) {
					theirs = append(theirs, o.charges())
				}
			}
			for _, most := range limit {
				if r.charges().Value(most.GetResource()) == 0 {
					continue
				}
				var sum int64
				for _, charged := range theirs {
					sum = api.AddSat(sum, charged.Value(most.GetResource()))
				}
				if sum > most.GetValue() {
					key := lastingKey{Quota, "queue " + path + " " + subject + " " + most.GetResource(),
						"revision " + strconv.FormatInt(e.Revision, 10)}
					a.later(key, 3*a.cfg.Lag, func(time.Time) {
						if a.admitted([]*gang{g.gang}, e.Revision) {
							a.storeViolation(Quota, key.object, []int64{e.Revision},
								"gang %s was admitted although %s then has %d, and may have %d", g.gang.uid, subject, sum,
								most.GetValue())
						}
					})
				}
			}
		}
	}
}

// userLine is an entry of spec.userLimits in one line, to compare what a Queue and a record say.
func userLine(users, groups []string, each bool, most api.Resources) string {
	return fmt.Sprintf("users %q, groups %q, each %t: {%s}", users, groups, each, most)
}

// userLines are the limits of users in force.
func (q *queue) userLines() (out []string) {
	for i, l := range q.users {
		out = append(out, userLine(l.GetUsers(), l.GetGroups(), l.GetEach(), q.userMost[i]))
	}
	return out
}

// limitOf returns whom of those that a queue limits a gang is charged to, and how much he may have; "" for nobody.
func limitOf(limits []*wire.UserLimit, r *reservation) (subject string, most []*wire.Amount) {
	for i, l := range limits {
		if l.GetEach() || slices.Contains(l.GetUsers(), r.user) {
			return "user " + r.user, l.GetCapability()
		}
		for _, g := range l.GetGroups() {
			if slices.Contains(r.groups, g) {
				return "groups of entry " + strconv.Itoa(i), l.GetCapability()
			}
		}
	}
	return "", nil
}

// admitted reports whether no pod of the gangs was bound before they were admitted at the revision: each that is bound now
// had an intent after it.
func (a *Auditor) admitted(gangs []*gang, revision int64) bool {
	for _, p := range a.cluster.pods {
		if p.known && p.node != "" && p.intended < revision && slices.Contains(gangs, p.gang) {
			return false
		}
	}
	return true
}

// judgeBorrowing judges that gangs which say that they may not be evicted were admitted within what the queues of their paths deserve. Where there is a
// guarantee of the resource, nothing is judged: what is inside it is admitted, whatever others use.
func (a *Auditor) judgeBorrowing(e StoreRevision, gangs []*gang) {
	for _, g := range gangs {
		r := g.reservation
		if r == nil || !r.kept {
			continue
		}
		for _, path := range api.Lineage(r.queue) {
			for _, named := range a.store.queue(path).deserved {
				name := named.Resource
				if r.charges().Value(name) == 0 || a.store.queue(path).guarantee.Value(name) > 0 || a.store.guaranteedBelow(path,
					name) {
					continue
				}
				var sum int64
				for _, o := range a.store.reservations {
					if o.kept && api.Under(o.queue, path) {
						sum = api.AddSat(sum, o.charges().Value(name))
					}
				}
				if sum <= named.Value {
					continue
				}
				a.later(lastingKey{Guarantee, "gang " + g.uid + " " + path + " " + name, "revision " + strconv.FormatInt(e.Revision, 10)}, 3*a.cfg.Lag, func(time.Time) {
					if a.admitted([]*gang{g}, e.Revision) {
						a.storeViolation(Guarantee, "queue "+path+" "+name, []int64{e.Revision}, "gang %s may not be evicted and was admitted although such gangs then have %s, and the queue deserves %s",
							g.uid, api.FormatAmount(name, sum), api.FormatAmount(name, named.Value))
					}
				})
			}
		}
	}
}

func (a *Auditor) judgeGuarantee(e StoreRevision, name string, children map[string][]string, grew map[string]api.Resources, gangs []*gang) {
	own, wanted := map[string]int64{}, map[string]int64{} // charged by the queue's own gangs; what its subtree may count on
	cut := false
	var visit func(path string) int64
	visit = func(path string) int64 {
		q := a.store.queue(path)
		own[path] = api.AddSat(q.reserved.Value(name), q.forced.Value(name))
		var below int64
		for _, c := range children[path] {
			below = api.AddSat(below, visit(c))
			cq := a.store.queue(c)
			own[path] = api.AddSat(own[path], -api.AddSat(cq.reserved.Value(name), cq.forced.Value(name)))
		}
		says, named := q.says(name)
		guarantee, is := q.guarantee.Get(name)
		if wanted[path] = below; is {
			wanted[path], says = guarantee, guarantee
		}
		cut = cut || (is || named) && below > says
		if limit, limited := q.limits.Get(name); limited && wanted[path] > limit {
			cut = true
		}
		return wanted[path]
	}
	if visit(api.RootQueue); cut {
		return
	}
	var held func(path string, before bool) int64
	held = func(path string, before bool) int64 {
		total := own[path]
		if before {
			total = api.AddSat(total, -max(0, grew[path].Value(name)))
		}
		for _, c := range children[path] {
			total = api.AddSat(total, max(held(c, before), wanted[c]))
		}
		return total
	}
	for _, path := range slices.Sorted(maps.Keys(a.store.queues)) {
		limit, limited := a.store.queues[path].limits.Get(name)
		if !limited {
			continue
		}
		if now := held(path, false); now > limit && now > held(path, true) {
			key := lastingKey{Guarantee, "queue " + path + " " + name, "revision " + strconv.FormatInt(e.Revision, 10)}
			a.later(key, 3*a.cfg.Lag, func(time.Time) {
				if a.admitted(gangs, e.Revision) {
					a.storeViolation(Guarantee, key.object, []int64{e.Revision}, "gangs were admitted although, with the guarantees of others, %s are held of the capability of %s", api.FormatAmount(name, now), api.FormatAmount(name, limit))
				}
			})
		}
	}
}

// stamped judges the stamp of a status against the one before.
func (a *Auditor) stamped(object string, s v1beta1.Stamp, status any, version string) {
	old := a.cluster.stamps[object]
	a.cluster.stamps[object] = &stamp{s.Epoch, s.Writer, s.Sequence, status, version}
	if old == nil {
		return
	}
	message := ""
	switch {
	case s.Epoch < old.epoch:
		message = fmt.Sprintf("the status went from epoch %d back to epoch %d", old.epoch, s.Epoch)
	case s.Epoch > old.epoch:
	case s.Writer != old.writer:
		message = fmt.Sprintf("epoch %d has two writers, %s and %s", s.Epoch, old.writer, s.Writer)
	case s.Sequence < old.sequence:
		message = fmt.Sprintf("the status went from sequence %d back to %d in epoch %d", old.sequence, s.Sequence, s.Epoch)
	case s.Sequence == old.sequence && !apiequality.Semantic.DeepEqual(status, old.status):
		message = fmt.Sprintf("two different statuses have sequence %d in epoch %d", s.Sequence, s.Epoch)
	}
	if message != "" {
		a.violate(Violation{Kind: Status, Object: object, Message: message, Versions: []string{old.version, version}})
	}
}
