package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab/loop"
	"basalt.dev/basalt/bench/prove/script"
)

// TestScripts runs testdata/*.txt: see package script; the words of each command are at its case in player.do.
func TestScripts(t *testing.T) {
	script.Run(t, func(t *testing.T) script.Player {
		p := newScripted(t)
		t.Cleanup(func() {
			for _, problem := range p.store.problems {
				t.Error(problem)
			}
		})
		return p.play
	})
}

func newScripted(t *testing.T) *player {
	return &player{t: t, leader: newLeader(), uids: map[string]string{},
		generations: map[string]int64{}, attempts: map[string]uint64{}}
}

// play carries out one command of a script.
func (p *player) play(_, command string) []string {
	p.out = p.out[:0]
	p.do(strings.Fields(command))
	return p.out
}

// player runs the commands of one script.
type player struct {
	t *testing.T
	leader
	serial      uint64
	version     int
	uids        map[string]string
	generations map[string]int64
	attempts    map[string]uint64
	mandate     map[string]*wire.Mandate // by gang
	held        bool                     // transactions are not answered
	pending     []Txn
	asked       map[string]args // of the last Reserve of each gang
	mandated    []*wire.Mandate // not answered
	yields      []string        // gangs that are to go
	shrinks     []*wire.Shrink
	shrink      map[string]*wire.Shrink // the last that asks, by gang
	usages      bool                    // QueueUsages are shown
	quiet       bool
	roomy       bool // homes need the quota of their victims alone
	out         []string
}

func (p *player) print(format string, args ...any) {
	if !p.quiet {
		p.out = append(p.out, fmt.Sprintf(format, args...))
	}
}

func (p *player) step(ev Event) { p.tell(ev, p.carry) }

// carry shows an output, and answers a transaction unless they are held.
func (p *player) carry(o Output) []Event {
	p.show(o)
	t, is := o.(Txn)
	if !is {
		return nil
	}
	if p.pending = append(p.pending, t); p.held {
		return nil
	}
	return p.answer()
}

// answer answers the transaction that waits for it.
func (p *player) answer() []Event {
	if len(p.pending) == 0 {
		return nil
	}
	t := p.pending[0]
	p.pending = nil
	return []Event{p.commit(t)}
}

func (p *player) show(o Output) {
	switch o := o.(type) {
	case Log:
		var b strings.Builder
		for i := 0; i+1 < len(o.Args); i += 2 {
			v := o.Args[i+1]
			if at, ok := v.(time.Time); ok {
				v = at.UnixMilli()
			}
			fmt.Fprintf(&b, " %v=%v", o.Args[i], v)
		}
		p.print("log: %s%s", o.Message, b.String())
	case Send:
		p.showMessage(o)
	case Txn:
		for _, op := range o.Ops {
			p.print("txn %d: %s", o.ID, showOp(op))
		}
	case SetFinalizer:
		p.print("set finalizer of %s %s", o.Queue, o.UID)
	case RemoveFinalizer:
		p.print("remove finalizer of %s %s", o.Queue, o.UID)
	case CreateQueue:
		p.print("create queue %s", o.Name)
	case Trace:
		s := o.Span
		p.print("span %s in trace %s under %s: %v, of %v", s.Name, s.TraceID[:], s.ParentID[:], s.End.Sub(s.Start),
			s.Attributes)
	default:
		p.print("%T %+v", o, o)
	}
}

func showOp(op Op) string {
	switch op := op.(type) {
	case PutReservation:
		r := op.Record
		words := []string{"put", r.Gang.Uid, "in", r.Gang.Queue, "[" + amounts(r.Demand) + "]", fmt.Sprintf("attempt %d rank %d/%d", r.Attempt, r.Rank.Priority, r.Rank.Order)}
		if r.State == wire.ReservationState_RESERVATION_CLOSING {
			words = append(words, "closing")
		}
		if r.Forced {
			words = append(words, "forced")
		}
		if len(r.Pods) > 0 {
			words = append(words, fmt.Sprint("pods ", r.Pods))
		}
		if r.Least > 0 {
			words = append(words, fmt.Sprint("least ", r.Least))
		}
		if len(r.Condemned) > 0 {
			words = append(words, fmt.Sprintf("condemned %s for %s", podsOf(r.Condemned), r.Shrinks.GetTo().GetUid()))
		}
		if x := r.Claim; x != nil {
			words = append(words, fmt.Sprintf("claims [%s] of %s", amounts(x.Promised), victimsOf(x.Victims)))
		}
		if len(r.Awaits) > 0 {
			words = append(words, "awaits "+strings.Join(r.Awaits, ","))
		}
		if r.Within != nil {
			words = append(words, "in "+r.Within.Key+"="+r.Within.Value)
		}
		if y := r.Yields; y != nil {
			words = append(words, "for "+cmp.Or(y.GetTo().GetUid(), "nobody, "+y.GetRule().String()))
		}
		return strings.Join(words, " ")
	case DeleteReservation:
		return "delete " + op.GangUID + " in " + op.Queue
	case PutLimits:
		r := op.Record
		s := fmt.Sprintf("limits of %s uid %s generation %d [%s]", r.Queue, r.Uid, r.Generation, amounts(r.Capability))
		if len(r.Guarantee) > 0 {
			s += " guarantee [" + amounts(r.Guarantee) + "]"
		}
		if len(r.Deserved) > 0 {
			s += " deserved [" + amounts(r.Deserved) + "]"
		}
		if r.Weight != nil {
			s += fmt.Sprint(" weight ", *r.Weight)
		}
		if r.Priority != 0 {
			s += fmt.Sprint(" priority ", r.Priority)
		}
		if selector, err := storedSelector(r.NamespaceSelector); r.NamespaceSelector != nil {
			if s += fmt.Sprintf(" for namespaces {%v}", selector); err != nil {
				s += ": " + err.Error()
			}
		}
		if r.Closed {
			s += " closed"
		}
		if r.Deleted {
			s += " deleted"
		}
		return s
	case DeleteLimits:
		return "no limits of " + op.Queue
	case PutTable:
		s := fmt.Sprintf("table epoch %d %s", op.Table.Epoch, loads(op.Table))
		if op.Table.Refilling {
			s += " refilling"
		}
		return s
	}
	return fmt.Sprintf("%T", op)
}

func victimsOf(victims []*wire.Victim) string {
	var out []string
	for _, v := range victims {
		s := fmt.Sprintf("%s/%d", v.Gang.Uid, v.Attempt)
		if len(v.Pods) > 0 {
			s += ":" + podsOf(v.Pods)
		}
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

func podsOf(pods []*wire.SurplusPod) string {
	var out []string
	for _, p := range pods {
		out = append(out, fmt.Sprintf("%s[%s]", p.Uid, amounts(p.Amounts)))
	}
	return strings.Join(out, "+")
}

func loads(t *api.Table) string {
	var parts []string
	for _, m := range t.Members {
		parts = append(parts, fmt.Sprintf("%s:%d", m.Incarnation, t.Owned(m.Incarnation)))
	}
	return strings.Join(parts, " ")
}

func amounts(a []*wire.Amount) string {
	r, err := wire.ToResources(a)
	if err != nil {
		return err.Error()
	}
	return r.String()
}

func (p *player) showMessage(o Send) {
	switch m := o.Body.GetBody().(type) {
	case *wire.Envelope_Granted:
		patient := ""
		if m.Granted.Patient {
			patient = " patient"
		}
		p.print("-> %s granted %s attempt %d serial %d revision %d [%s]%s", o.To, m.Granted.GangUid, m.Granted.Attempt, m.Granted.Serial, m.Granted.ReservationRevision, amounts(m.Granted.Demand), patient)
	case *wire.Envelope_Denied:
		d := m.Denied
		lacks := ""
		if d.Resource != "" {
			lacks = fmt.Sprintf(" %s %s %d", d.Queue, d.Resource, d.Short)
		}
		if d.ReservationRevision != 0 {
			lacks += fmt.Sprintf(" (charged at revision %d [%s])", d.ReservationRevision, amounts(d.Demand))
		}
		p.print("-> %s denied %s attempt %d serial %d %s%s: %s", o.To, d.GangUid, d.Attempt, d.Serial, strings.TrimPrefix(d.Reason.String(), "DENY_"), lacks, d.Message)
	case *wire.Envelope_Unreserved:
		p.print("-> %s unreserved %s attempt %d serial %d", o.To, m.Unreserved.GangUid, m.Unreserved.Attempt, m.Unreserved.Serial)
	case *wire.Envelope_Closed:
		p.print("-> %s closed %s attempt %d serial %d", o.To, m.Closed.GangUid, m.Closed.Attempt, m.Closed.Serial)
	case *wire.Envelope_Mandate:
		d := m.Mandate
		p.mandate[d.GangUid] = d
		p.mandated = append(p.mandated, d)
		var lacks, gangs, sides []string
		for _, l := range d.Lacks {
			lacks = append(lacks, fmt.Sprintf("%s %s %d", l.Queue, l.Resource, l.Short))
		}
		equal := !slices.ContainsFunc(d.Candidates, func(v *wire.Candidate) bool { return v.Standing != 1 })
		for _, v := range d.Candidates {
			s := fmt.Sprintf("%s/%d[%s]", v.Gang.Uid, v.Attempt, amounts(v.Demand))
			if !equal {
				s += fmt.Sprint(" of ", v.Standing)
			}
			if v.Least > 0 {
				s += fmt.Sprint(" least ", v.Least)
			}
			if len(v.Condemned) > 0 {
				s += fmt.Sprint(" condemned ", len(v.Condemned))
			}
			gangs = append(gangs, s)
		}
		for _, x := range d.Sides {
			s := fmt.Sprintf("%s above [%s]", x.Queue, amounts(x.Above))
			if len(x.Spare) > 0 {
				s += fmt.Sprintf(" spare [%s]", amounts(x.Spare))
			}
			if x.Borrowed {
				s += " borrowed"
			}
			sides = append(sides, s)
		}
		s := fmt.Sprintf("-> %s mandate %d for %s attempt %d serial %d %s: lacks {%s} from {%s}", o.To, d.Number&(1<<24-1), d.GangUid, d.Attempt, d.Serial, strings.TrimPrefix(d.Rule.String(), "RULE_"),
			strings.Join(lacks, ", "), strings.Join(gangs, " "))
		if len(sides) > 0 {
			s += " sides {" + strings.Join(sides, ", ") + "}"
		}
		if len(d.AtLeast) > 0 {
			s += " at least [" + amounts(d.AtLeast) + "]"
		}
		p.print("%s", s)
	case *wire.Envelope_ClaimReply:
		d := m.ClaimReply
		s := "refused"
		if d.Accepted {
			s = "accepted"
		}
		if d.ReservationRevision != 0 {
			s += fmt.Sprintf(" revision %d", d.ReservationRevision)
		}
		if len(d.Awaits) > 0 {
			s += " awaits " + strings.Join(d.Awaits, ",")
		}
		if len(d.Spared) > 0 {
			s += " spared " + strings.Join(d.Spared, ",")
		}
		p.print("-> %s claim of %s attempt %d under mandate %d %s: %s", o.To, d.GangUid, d.Attempt, d.Mandate&(1<<24-1), s, d.Message)
	case *wire.Envelope_Yield:
		p.yields = append(p.yields, m.Yield.Gang.Uid)
		p.print("-> %s yield %s attempt %d: %s", o.To, m.Yield.Gang.Uid, m.Yield.Attempt, m.Yield.To.Why)
	case *wire.Envelope_Shrink:
		d := m.Shrink
		if r := d.ReservationRevision; r <= 0 || r > p.store.revision {
			p.t.Errorf("a Shrink of %s names revision %d, the store is at %d", d.Gang.Uid, r, p.store.revision)
		}
		p.shrinks = append(p.shrinks, d)
		s := fmt.Sprintf("-> %s shrink %s attempt %d:", o.To, d.Gang.Uid, d.Attempt)
		if len(d.Pods) > 0 {
			p.shrink[d.Gang.Uid] = d
			s += fmt.Sprintf(" %s may go?", podsOf(d.Pods))
		}
		if len(d.Condemned) > 0 {
			s += fmt.Sprintf(" %s are condemned", podsOf(d.Condemned))
		}
		p.print("%s: %s", s, d.To.GetWhy())
	case *wire.Envelope_QueueUsages:
		if !p.usages {
			return
		}
		for _, u := range m.QueueUsages.Queues {
			p.print("-> %s usage of %s generation %d: charged [%s] capability [%s] guarantee [%s] admitted %d waiting %d %s: %s", o.To, u.Queue, u.Generation,
				amounts(u.Charged), amounts(u.Capability), amounts(u.Guarantee), u.Admitted, u.Waiting, u.ReadyReason, u.Message)
			if len(u.Wanted) > 0 {
				p.print("     wanted [%s] fair [%s] weighted %d promised [%s] yielding [%s]", amounts(u.Wanted), amounts(u.FairShare), u.WeightedShare, amounts(u.Promised), amounts(u.Yielding))
			}
		}
	case *wire.Envelope_Known:
		var parts []string
		for i, g := range m.Known.Gangs {
			parts = append(parts, fmt.Sprintf("%s/%d", g.Uid, m.Known.Attempts[i]))
		}
		p.print("-> %s known %s", o.To, strings.Join(parts, " "))
	default:
		p.print("-> %s %T", o.To, m)
	}
}

// args are the words of a command: names, then key=value pairs and bare flags.
type args struct {
	p      *player
	names  []string
	values map[string]string
}

func (p *player) args(words []string) args {
	a := args{p: p, values: map[string]string{}}
	for _, w := range words {
		if k, v, found := strings.Cut(w, "="); found {
			a.values[k] = v
		} else {
			a.names = append(a.names, w)
		}
	}
	return a
}

func (a args) has(flag string) bool { return slices.Contains(a.names[1:], flag) }

func (a args) number(key string, or int64) int64 {
	v, ok := a.values[key]
	if !ok {
		return or
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		a.p.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return n
}

// vector reads cpu:2,memory:4Gi.
func (a args) vector(key string) api.Resources {
	m := map[string]int64{}
	for _, part := range strings.Split(a.values[key], ",") {
		if part == "" {
			continue
		}
		name, v, _ := strings.Cut(part, ":")
		q, err := resource.ParseQuantity(v)
		if err != nil {
			a.p.t.Fatalf("%s=%s: %v", key, a.values[key], err)
		}
		if m[name], err = api.FromQuantity(name, q, false); err != nil {
			a.p.t.Fatalf("%s=%s: %v", key, a.values[key], err)
		}
	}
	return api.FromMap(m)
}

func (p *player) do(words []string) {
	command, a := words[0], p.args(words[1:])
	if p.asked == nil {
		p.asked, p.mandate, p.shrink = map[string]args{}, map[string]*wire.Mandate{}, map[string]*wire.Shrink{}
	}
	if len(a.names) == 0 {
		a.names = []string{""}
	}
	name := a.names[0]
	switch command {
	case "elect": // a new coordinator on the same store; elect fresh | ungated | status=EPOCH | shards=a,b |
		// corrupt=gang | every=25ms | asks=N
		e := p.reads()
		e.FreshStore = name == "fresh"
		e.MaxStatusEpoch = api.Epoch(a.number("status", 0))
		for _, s := range strings.Split(a.values["shards"], ",") {
			if s != "" {
				e.Shards = append(e.Shards, shardRecord(s))
			}
		}
		for i := range e.Reservations {
			if r := &e.Reservations[i]; a.values["corrupt"] != "" && strings.HasSuffix(r.Key, "/"+a.values["corrupt"]) {
				r.Record = nil
				delete(p.store.reservations, r.Key)
			}
		}
		p.pending, p.held = nil, false
		every, _ := time.ParseDuration(a.values["every"])
		p.leads(Config{CommitEvery: every, Asks: int(a.number("asks", 0)), Ungated: name == "ungated"}, e)
		loop.Drain(p.core, p.now, p.carry)
	case "start": // elect, shards, root and default, first table: the scripts' common beginning; quiet
		p.quiet = true
		p.do([]string{"elect"})
		for _, s := range a.names {
			p.do([]string{"up", s})
			p.do([]string{"link", s})
		}
		p.do([]string{"queue", "root"})
		p.do([]string{"queue", "default"})
		p.do([]string{"synced"})
		p.do([]string{"wait", "2s"})
		p.quiet = false
	case "queue": // queue NAME cap=… guarantee=… deserved=… weight=… priority=… reclaim=never|fair kept preempts=yes|no delay= runtime= closed deleting nofinalizer listed uid= rv= status=EPOCH invalid=WORD namespaces=SELECTOR
		p.version++
		p.generations[name]++
		if p.uids[name] == "" {
			p.uids[name] = "u-" + name
		}
		if uid := a.values["uid"]; uid != "" {
			p.uids[name] = uid
		}
		if a.has("listed") {
			delete(p.store.versions, name) // the one case in which limits may go back
		}
		var weight *uint32
		if _, named := a.values["weight"]; named {
			weight = new(uint32(a.number("weight", 1)))
		}
		// limits=user:NAME+NAME/cpu:2;group:NAME/cpu:2;each/cpu:2
		p.step(QueueSeen{UserLimits: a.userLimits(),
			Policy: a.policy(), Deserved: a.vector("deserved"), Weight: weight,
			Priority: int32(a.number("priority", 0)), Listed: a.has("listed"), Name: name,
			UID: p.uids[name], ResourceVersion: fmt.Sprint(a.number("rv", int64(100+p.version))),
			Generation: a.number("generation", p.generations[name]), Capability: a.vector("cap"), Guarantee: a.vector("guarantee"),
			Invalid: strings.ReplaceAll(a.values["invalid"], "_", " "), Closed: a.has("closed"), Deleting: a.has("deleting"), HasFinalizer: !a.has("nofinalizer"),
			StatusEpoch: api.Epoch(a.number("status", 0)), Namespaces: a.selector()})
	case "namespace": // namespace NAME LABEL=VALUE...
		p.step(NamespaceSeen{Name: name, Labels: a.values})
	case "namespace-gone":
		p.step(NamespaceGone{Name: name})
	case "namespaces-synced":
		p.step(NamespacesSynced{})
	case "gone": // gone NAME uid=
		uid, named := a.values["uid"]
		if !named {
			uid = p.uids[name]
		}
		p.step(QueueGone{Name: name, UID: uid})
	case "synced":
		p.step(QueuesSynced{})
	case "up": // up NAME/INCARNATION draining
		r := shardRecord(name)
		r.Draining = a.has("draining")
		p.step(ShardUp{Record: r})
	case "down":
		p.step(ShardDown{Incarnation: api.Incarnation(shardRecord(name).Incarnation)})
	case "link":
		p.step(ShardLinked{Incarnation: api.Incarnation(shardRecord(name).Incarnation)})
	case "refilled":
		p.step(Message{From: api.Incarnation(shardRecord(name).Incarnation), Body: &wire.Envelope{Body: &wire.Envelope_Refilled{
			Refilled: &wire.Refilled{TableEpoch: uint64(a.number("epoch", int64(p.epoch())))}}}})
	case "settle": // settle 2m: homes answer mandates as if room were no matter, evict who is to go, and ask again for these; who has what then
		p.settle(name)
	case "stuck": // stuck GANG queue=
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Stuck{Stuck: &wire.Stuck{Gang: a.gang(), Attempt: p.attempt(name),
			Serial: uint64(a.number("serial", int64(p.serial))), TableEpoch: uint64(p.epoch())}}})
	case "condemn": // condemn GANG queue= refused= serial= mandate=: the answer to the last Shrink that asks
		m := p.shrink[name]
		w := &wire.Condemn{Term: p.term, Gang: a.gang(), Attempt: p.attempt(name), Serial: p.nextSerial(a), TableEpoch: uint64(p.epoch()),
			Mandate: uint64(a.number("mandate", int64(m.GetMandate()))), Refused: a.values["refused"]}
		for _, pod := range m.GetPods() {
			w.Pods = append(w.Pods, pod.Uid)
		}
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Condemn{Condemn: w}})
	case "claim": // claim GANG queue= victims=GANG/QUEUE:POD+POD,.. (pods of 1 cpu) awaits=.. (the victims, if not said) within=KEY:VALUE mandate= serial= term= [stale]: under the last mandate
		m := p.mandate[name]
		w := &wire.Claim{Gang: a.gang(), Attempt: p.attempt(name), Serial: uint64(a.number("serial", int64(m.GetSerial()))), Mandate: uint64(a.number("mandate", int64(m.GetNumber()))),
			Term: a.number("term", m.GetTerm()), TableEpoch: uint64(p.epoch()), GraceMs: a.number("grace", 0), Stale: a.has("stale")}
		for _, word := range strings.Split(a.values["victims"], ",") {
			if uid, queue, found := strings.Cut(word, "/"); found {
				queue, pods, single := strings.Cut(queue, ":")
				v := &wire.Victim{Gang: &wire.GangRef{Uid: uid, Queue: queue}, Attempt: p.attempt(uid)}
				w.Victims = append(w.Victims, v)
				if !single {
					w.Awaits = append(w.Awaits, uid)
					continue
				}
				for _, pod := range strings.Split(pods, "+") {
					v.Pods = append(v.Pods, onePod(pod))
					w.Awaits = append(w.Awaits, pod)
				}
			}
		}
		if s, named := a.values["awaits"]; named {
			w.Awaits = strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
		}
		if key, value, ok := strings.Cut(a.values["within"], ":"); ok {
			w.Within = &wire.Label{Key: key, Value: value}
		}
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Claim{Claim: w}})
	case "supply": // supply SHARD free=… own=… epoch=: what its nodes have
		p.step(Message{From: api.Incarnation(shardRecord(name).Incarnation), Body: &wire.Envelope{Body: &wire.Envelope_Supply{Supply: &wire.Supply{
			TableEpoch: uint64(a.number("epoch", int64(p.epoch()))), Free: wire.FromResources(a.vector("free")), Own: wire.FromResources(a.vector("own"))}}}})
	case "unplaced": // unplaced GANG queue=… ask=… attempt=: what found no room
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Unplaced{Unplaced: &wire.Unplaced{GangUid: name,
			Attempt: uint64(a.number("attempt", int64(p.attempt(name)))), Demand: wire.FromResources(a.vector("ask")),
			Repairs: a.has("repairs")}}})
	case "reserve": // reserve GANG queue=… ask=… bound=… attempt= serial= priority= since= order= from= epoch= term=
		// user= groups=a,b pods=1,2 least= runs=SECONDS place= ns= trace=ID/SPAN patient single
		if n := a.number("attempt", 0); n > 0 {
			p.attempts[name] = uint64(n)
		}
		p.asked[name] = a
		m := &wire.Reserve{Gang: a.gang(), Attempt: p.attempt(name), Serial: p.nextSerial(a), Demand: wire.FromResources(a.vector("ask")),
			Bound: wire.FromResources(a.vector("bound")), Priority: a.number("priority", 0), SinceUnixMs: a.number("since", p.now.UnixMilli()),
			TableEpoch: uint64(a.number("epoch", int64(p.epoch()))), Patient: a.has("patient"), Term: a.number("term", 0), Pods: a.pods(), Preemptible: !a.has("keeps") && !a.has("bare"), Kept: a.has("keeps"), Claims: !a.has("never"), Vain: a.has("vain"), Least: uint32(a.number("least", 0))}
		m.Started, m.Mends, m.Stays = a.has("started"), a.has("mends"), a.has("stays")
		m.RunsMs, m.Order = 1000*a.number("runs", 0), a.place()
		m.User = strings.ReplaceAll(a.values["user"], "_", " ")
		m.Groups = strings.FieldsFunc(a.values["groups"], func(r rune) bool { return r == ',' })
		if trace, span, traced := strings.Cut(a.values["trace"], "/"); traced {
			m.Trace = &wire.Trace{TraceId: []byte(trace), SpanId: []byte(span)}
		}
		if order := a.number("order", 0); order > 0 {
			m.Rank = &wire.Rank{Priority: m.Priority, Order: uint64(order), GangUid: name}
		}
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: m}})
	case "unreserve": // unreserve GANG queue=… attempt= serial= only lost
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: a.gang(), Attempt: uint64(a.number("attempt", int64(p.attempt(name)))),
			Serial: p.nextSerial(a), TableEpoch: uint64(p.epoch()), Lost: a.has("lost")}}})
	case "close": // close GANG queue=… attempt= serial= stale
		m := &wire.Close{Gang: a.gang(), Attempt: uint64(a.number("attempt", int64(p.attempt(name)))),
			Serial: p.nextSerial(a), TableEpoch: uint64(p.epoch())}
		if a.has("stale") {
			m.Rule, m.Reason = wire.Rule_RULE_STALE, "it was short for too long"
		}
		p.message(a, &wire.Envelope{Body: &wire.Envelope_Close{Close: m}})
	case "wait": // wait 10s: ticks
		d, err := time.ParseDuration(name)
		if err != nil {
			p.t.Fatal(err)
		}
		for end := p.now.Add(d); p.now.Before(end); {
			p.now = p.now.Add(100 * time.Millisecond)
			before := len(p.out)
			p.step(Tick{})
			if len(p.out) > before {
				p.out = slices.Insert(p.out, before, fmt.Sprintf("at +%v", d-end.Sub(p.now)))
			}
		}
	case "due": // time goes to when the core is to be stepped
		at := p.core.Due()
		if at.IsZero() {
			p.t.Fatal("nothing is due")
		}
		if at.After(p.now) {
			p.print("at +%v", at.Sub(p.now))
			p.now = at
		}
		p.step(Gathered{})
	case "hold": // transactions stay in flight until commit
		p.held = true
	case "commit":
		p.held = a.has("hold")
		for _, ev := range p.answer() {
			p.step(ev)
		}
	case "land": // what is in flight takes effect, and the answer is lost
		for _, t := range p.pending {
			p.store.commit(t)
		}
		p.pending = nil
	case "usages": // usages on | off
		p.usages = name == "on"
	case "metrics": // of all queues, how long granted requests had waited, and counts
		p.core.Queues(p.now, func(s QueueSums) {
			oldest := "none"
			if !s.OldestWait.IsZero() {
				oldest = fmt.Sprint(s.OldestWait.UnixMilli())
			}
			if len(s.Deserved) > 0 {
				lacks := "nothing"
				if !s.DeservedWait.IsZero() {
					lacks = fmt.Sprintf("some of it for %v", p.now.Sub(s.DeservedWait))
				}
				p.print("%s: deserves [%v], lacks %s", s.Queue, s.Deserved, lacks)
			}
			p.print("%s: charged [%v] capability [%v] guarantee [%v] admitted %d waiting %d oldest %s", s.Queue, s.Charged, s.Capability, s.Guarantee, s.Admitted, s.Waiting, oldest)
		})
		p.print("waits %v", p.core.Waits())
		p.print("%+v", p.core.Counts())
	case "status": // what operators see of a queue
		for _, u := range p.core.Status().Queues {
			if u.Queue == name {
				p.print("%s %s: %s", u.Queue, u.ReadyReason, u.Message)
			}
		}
	case "usable": // usable NAMESPACE under=QUEUE: the queues that the namespace may use
		m := p.core.UsableBy(p.now, &wire.QueuesRequest{Namespace: name, Queue: a.values["under"]})
		for _, u := range m.Queues {
			p.print("%s: admitted %d, waiting %d", u.Queue, u.Admitted, u.Waiting)
		}
		p.print("%d queues", m.QueuesTotal)
	case "standing": // standing GANG queue= | standing queue= ns=: what users are told
		m := p.core.Standing(p.now, &wire.StandingRequest{Queue: a.values["queue"], GangUid: name, Namespace: a.values["ns"]})
		if a.values["ns"] != "" && m.Known {
			var above []string
			for _, u := range m.Ancestors {
				above = append(above, u.Queue)
			}
			p.print("admits %s: %v; below %v", a.values["ns"], m.Admits, above)
		}
		if n := m.GetNext(); n != nil {
			p.print("next %s, short of %s %s %d", n.GetUid(), m.ShortQueue, m.ShortResource, m.Short)
		}
		for _, t := range m.Turns {
			p.print("%s is %d of %d, %s (%s %d + %d of %d, share %d)", t.Queue, t.Place, t.Of, t.Band, t.Resource, t.Has, t.Requests, t.Limit, t.WeightedShare)
		}
		if m.Eviction != "" {
			at := ""
			if m.ThenUnixMs > 0 {
				at = fmt.Sprint(" in ", time.UnixMilli(m.ThenUnixMs).Sub(p.now))
			}
			p.print("%s; %s%s", m.Eviction, m.Then, at)
		}
		p.showLent(m)
		for _, n := range m.Claims {
			p.print("claim of %s: %d, takes %v", n.Gang.Uid, n.Victims, n.Takes)
		}
		if !m.Known {
			p.print("unknown")
		}
	case "whatif": // whatif GANG queue=.. | plan queue=.. ask=.. further=.. pods= priority= runs= place= ns= never,
		// with QUEUE:FIELD=VALUE ..: what users are told
		q := Question{Changes: a.changes(), Queue: a.values["queue"], GangUID: name}
		if name == "plan" {
			q.Planned = &wire.PlannedGang{Namespace: a.gang().Namespace, Queue: q.Queue, Demand: wire.FromResources(a.vector("ask")), Further: wire.FromResources(a.vector("further")),
				Pods: uint32(a.number("pods", 1)), Priority: a.number("priority", 0), Claims: !a.has("never"),
				RunsMs: 1000 * a.number("runs", 0), Order: a.place()}
		}
		before := snapshot(p.core)
		m := p.core.WhatIf(p.now, q)
		if diff := changed(before, snapshot(p.core)); diff != "" {
			p.t.Errorf("%v changes the core: %s", words, diff)
		}
		p.showWhatIf(m)
	case "corrupt-selector": // corrupt-selector QUEUE: in the store
		p.store.limits[name].NamespaceSelector = []byte("\x0a\xff")
	case "sums": // what each queue holds
		p.core.tree.recompute()
		p.core.tree.root.walk(func(q *queue) {
			s := fmt.Sprintf("%s%s: charged [%v]", strings.Repeat("  ", len(api.Lineage(q.path))-1), q.path, q.charged.amounts())
			if held := q.held.amounts(); !held.Equal(q.charged.amounts()) {
				s += fmt.Sprintf(" held [%v]", held)
			}
			if g := q.guarantee.Positive(); len(g) > 0 {
				s += fmt.Sprintf(" guarantee [%v]", g)
			}
			if !q.deserved.Equal(q.guarantee) {
				s += fmt.Sprintf(" deserved [%v]", q.deserved)
			}
			p.print("%s admitted %d waiting %d", s, q.members.admitted, q.members.waiting)
		})
	default:
		p.t.Fatalf("unknown command %q", command)
	}
}

// changes reads QUEUE:FIELD=VALUE; an empty value is none.
func (a args) changes() (out []Change) {
	for _, key := range api.SortedKeys(a.values) {
		queue, field, is := strings.Cut(key, ":")
		if !is {
			continue
		}
		value := a.values[key]
		field, resource, _ := strings.Cut(field, ".")
		one := args{p: a.p, names: []string{"", value}, values: map[string]string{field: value, "one": resource + ":" + value}}
		vector := func(v *api.Resources) {
			m := map[string]int64{}
			for _, a := range *v {
				m[a.Resource] = a.Value
			}
			if delete(m, resource); value != "" {
				m[resource] = one.vector("one").Value(resource)
			}
			*v = api.FromMap(m)
		}
		out = append(out, Change{Queue: queue, Apply: func(o *QueueSeen) {
			switch field {
			case "capability":
				vector(&o.Capability)
			case "guarantee":
				vector(&o.Guarantee)
			case "deserved":
				vector(&o.Deserved)
			case "weight":
				o.Weight = new(uint32(one.number("weight", 1)))
			case "priority":
				o.Priority = int32(one.number("priority", 0))
			default:
				o.Policy = one.policy()
			}
		}})
	}
	return out
}

// showLent shows for how long others are lent what is kept from a gang.
func (p *player) showLent(m *wire.StandingReply) {
	if ms := m.GetLentMs(); ms > 0 {
		p.print("lent for %v", time.Duration(ms)*time.Millisecond)
	}
	if why := m.GetLentNever(); why != "" {
		p.print("not lent: %s", why)
	}
}

// place is what a queue's expression says of a gang, nil where it says nothing.
func (a args) place() *int64 {
	if a.values["place"] == "" {
		return nil
	}
	return new(a.number("place", 0))
}

func (p *player) showWhatIf(m *wire.WhatIfReply) {
	if m.Invalid != "" {
		p.print("invalid: %s", m.Invalid)
	}
	for _, o := range m.Queues {
		var parts []string
		part := func(what, before, after string) {
			if before != after {
				parts = append(parts, fmt.Sprintf("%s [%s] -> [%s]", what, before, after))
			}
		}
		b, a := o.Before, o.After
		part("capability", amounts(b.Capability), amounts(a.Capability))
		part("guarantee", amounts(b.Guarantee), amounts(a.Guarantee))
		part("deserved", amounts(b.Deserved), amounts(a.Deserved))
		part("wanted", amounts(b.Wanted), amounts(a.Wanted))
		part("fair", amounts(b.FairShare), amounts(a.FairShare))
		part("weighted", fmt.Sprint(b.WeightedShare), fmt.Sprint(a.WeightedShare))
		part("message", b.Message, a.Message)
		p.print("queue %s, named %v, charged [%s]: %s", b.Queue, o.Named, amounts(b.Charged), strings.Join(parts, ", "))
	}
	for _, g := range m.Gangs {
		for _, side := range []struct {
			when string
			o    *wire.Outlook
		}{{"before", g.Before}, {"after", g.After}} {
			o := side.o
			if o == nil {
				continue
			}
			s := "unknown"
			switch {
			case o.Place > 0 && !o.Granted:
				s = fmt.Sprintf("%d of %d, denied %s %s %s %d: %s", o.Place, o.Waiting, strings.TrimPrefix(o.Reason.String(), "DENY_"), o.Queue, o.Resource, o.Short, o.Message)
			case o.Granted:
				s = fmt.Sprintf("%d of %d, granted", o.Place, o.Waiting)
				if o.Further != "" {
					s += "; not the pods that follow: " + o.Further
				}
			case o.Charged:
				s = "charged"
			}
			if o.Order != nil {
				s = fmt.Sprintf("by its place %d: %s", *o.Order, s)
			}
			if o.AheadTotal > 0 {
				var names []string
				for _, h := range o.Ahead {
					names = append(names, h.Name)
				}
				s = fmt.Sprintf("after %d: %v: %s", o.AheadTotal, names, s)
			}
			p.print("%s %s: %s", cmp.Or(g.Gang.GetName(), "planned"), side.when, s)
			for _, t := range o.Standing.GetTurns() {
				p.print("  %s is %d of %d, %s", t.Queue, t.Place, t.Of, t.Band)
			}
			if e := o.Standing; e.GetEviction() != "" {
				at := ""
				if e.ThenUnixMs > 0 {
					at = fmt.Sprint(" in ", time.UnixMilli(e.ThenUnixMs).Sub(p.now))
				}
				p.print("  %s; %s%s", e.Eviction, e.Then, at)
			}
			p.showLent(o.Standing)
			if o.Exposed != "" {
				p.print("  %s", o.Exposed)
			}
			if l := o.Toll; l != nil {
				var names []string
				for _, v := range l.Gangs {
					names = append(names, v.Uid)
				}
				p.print("  %s: %d of %d gangs, %d shrinkable, %d pods, [%s], %d core-seconds: %v", strings.TrimPrefix(l.Rule.String(), "RULE_"), l.GangsTotal, l.Candidates, l.Shrinkable, l.Pods,
					amounts(l.Freed), l.CoreSeconds, names)
			}
		}
	}
	if int(m.QueuesTotal) > len(m.Queues) || int(m.GangsTotal) > len(m.Gangs) {
		p.print("%d queues and %d gangs in all", m.QueuesTotal, m.GangsTotal)
	}
}

// settle lets time pass, and plays homes without nodes.
func (p *player) settle(long string) {
	d, err := time.ParseDuration(long)
	if err != nil {
		p.t.Fatal(err)
	}
	p.quiet = true
	var evicted []string
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(500 * time.Millisecond)
		p.step(Tick{})
		mandates, yields, shrinks := p.mandated, p.yields, p.shrinks
		p.mandated, p.yields, p.shrinks = nil, nil, nil
		for _, m := range mandates {
			a := p.asked[m.GangUid]
			x := &wire.Claim{Gang: a.gang(), Attempt: m.Attempt, Serial: m.Serial, Mandate: m.Number, Term: m.Term, TableEpoch: uint64(p.epoch()), Victims: planOf(m, p.surplusOf)}
			for _, v := range x.Victims {
				if p.roomy {
					break
				}
				for _, pod := range v.Pods {
					x.Awaits = append(x.Awaits, pod.Uid)
				}
				if len(v.Pods) == 0 {
					x.Awaits = append(x.Awaits, v.Gang.Uid)
				}
			}
			p.message(a, &wire.Envelope{Body: &wire.Envelope_Claim{Claim: x}})
		}
		for _, m := range shrinks {
			name := m.Gang.Uid
			a := p.asked[name]
			if len(m.Pods) > 0 {
				p.do([]string{"condemn", name, "queue=" + a.values["queue"]})
			}
			if len(m.Condemned) == 0 {
				continue
			}
			left := strings.Split(a.values["pods"], ",")
			for _, pod := range m.Condemned {
				if slices.Contains(left, pod.Uid) {
					evicted = append(evicted, pod.Uid)
				}
				left = slices.DeleteFunc(left, func(uid string) bool { return uid == pod.Uid })
			}
			p.do([]string{"reserve", name, "queue=" + a.values["queue"], fmt.Sprint("ask=cpu:", len(left)), "pods=" + strings.Join(left, ","), "least=" + a.values["least"]})
		}
		for _, name := range yields {
			a := p.asked[name]
			if r := p.store.reservations["reservations/"+a.values["queue"]+"/"+name]; r.GetYields() == nil || r.Attempt != p.attempt(name) {
				continue
			}
			evicted = append(evicted, name)
			p.message(a, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: a.gang(), Attempt: p.attempt(name), Serial: p.nextSerial(args{p: p}), TableEpoch: uint64(p.epoch())}}})
			words := append([]string{"reserve"}, a.names...)
			for k, v := range a.values {
				if k != "attempt" && k != "serial" {
					words = append(words, k+"="+v)
				}
			}
			p.do(append(words, fmt.Sprintf("attempt=%d", p.attempt(name)+1)))
		}
	}
	p.quiet = false
	list := func(names []string) string {
		if len(names) > 12 {
			return fmt.Sprintf("%d gangs", len(names))
		}
		return "{" + strings.Join(names, " ") + "}"
	}
	p.print("evicted %s", list(evicted))
	p.core.tree.root.walk(func(q *queue) {
		if len(q.members.reserved)+len(q.order.classOf) == 0 {
			return
		}
		var has, waits []string
		for _, g := range q.members.reserved {
			has = append(has, g.key.uid)
		}
		for _, r := range p.core.ring {
			if r.queue == q {
				waits = append(waits, r.gang.key.uid)
			}
		}
		slices.Sort(has)
		slices.Sort(waits)
		p.print("%s has [%v] %s waits %s", q.path, q.charged.amounts(), list(has), list(waits))
	})
}

func onePod(uid string) *wire.SurplusPod {
	return &wire.SurplusPod{Uid: uid, Amounts: []*wire.Amount{{Resource: "cpu", Value: 1000}}}
}

// surplusOf returns the pods that a gang may lose, the last first.
func (p *player) surplusOf(v *wire.Candidate) (out []*wire.SurplusPod) {
	pods := strings.Split(p.asked[v.Gang.Uid].values["pods"], ",")
	for _, uid := range slices.Backward(pods[v.Least:]) {
		out = append(out, onePod(uid))
	}
	return out
}

// shardRecord reads NAME/INCARNATION, or NAME for an incarnation of the same name.
func shardRecord(s string) *wire.ShardRecord {
	name, incarnation, found := strings.Cut(s, "/")
	if !found {
		incarnation = name
	}
	return &wire.ShardRecord{Name: name, Incarnation: incarnation}
}

func (p *player) epoch() api.Epoch {
	if p.store.table == nil {
		return 0
	}
	return p.store.table.Epoch
}

func (p *player) attempt(gang string) uint64 { return max(1, p.attempts[gang]) }

func (p *player) nextSerial(a args) uint64 {
	p.serial++
	return uint64(a.number("serial", int64(p.serial)))
}

func (a args) gang() *wire.GangRef {
	namespace := "ns"
	if v, named := a.values["ns"]; named {
		namespace = v
	}
	return &wire.GangRef{Uid: a.names[0], Namespace: namespace, Name: a.names[0], Queue: a.values["queue"], Single: a.has("single")}
}

// policy reads reclaim=, kept, preempts=, delay= and runtime=.
func (a args) policy() *wire.QueuePolicy {
	x := &wire.QueuePolicy{Kept: a.has("kept")}
	switch a.values["reclaim"] {
	case "never":
		x.Reclaim = wire.Reclaim_RECLAIM_NEVER
	case "fair":
		x.Reclaim = wire.Reclaim_RECLAIM_FAIR_SHARE
	}
	if s, named := a.values["preempts"]; named {
		x.Preempts = new(s == "yes")
	}
	if s, named := a.values["delay"]; named {
		d, _ := time.ParseDuration(s)
		x.PreemptionDelayMs = new(d.Milliseconds())
	}
	if s, named := a.values["runtime"]; named {
		d, _ := time.ParseDuration(s)
		x.ReclaimMinRuntimeMs, x.PreemptMinRuntimeMs = new(d.Milliseconds()), new(d.Milliseconds())
	}
	if proto.Equal(x, &wire.QueuePolicy{}) {
		return nil
	}
	return x
}

// selector reads namespaces=LABEL=VALUE;LABEL=VALUE, all for one that selects everything, unreadable or large for bad ones.
// userLimits reads limits=user:alice+bob/cpu:2;group:interns/cpu:2;each/cpu:2.
func (a args) userLimits() (out []*wire.UserLimit) {
	for word := range strings.FieldsFuncSeq(a.values["limits"], func(r rune) bool { return r == ';' }) {
		subject, amounts, _ := strings.Cut(word, "/")
		kind, names, _ := strings.Cut(subject, ":")
		l := &wire.UserLimit{Each: kind == "each"}
		switch of := strings.Split(names, "+"); kind {
		case "user":
			l.Users = of
		case "group":
			l.Groups = of
		}
		vector := args{p: a.p, values: map[string]string{"amounts": amounts}}
		l.Capability = wire.FromResources(vector.vector("amounts"))
		out = append(out, l)
	}
	return out
}

func (a args) selector() *metav1.LabelSelector {
	words, named := a.values["namespaces"]
	if !named {
		return nil
	}
	s := &metav1.LabelSelector{}
	switch words {
	case "all":
	case "unreadable":
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Resembles"}}
	case "large":
		s.MatchLabels = map[string]string{"team": strings.Repeat("x", maxSelectorBytes)}
	default:
		s.MatchLabels = map[string]string{}
		for _, pair := range strings.Split(words, ";") {
			k, v, _ := strings.Cut(pair, "=")
			s.MatchLabels[k] = v
		}
	}
	return s
}

// pods reads pods=1,2: numbers, or UIDs, which are sorted.
func (a args) pods() (out []uint64) {
	for _, word := range strings.Split(a.values["pods"], ",") {
		if n, err := strconv.ParseUint(word, 10, 64); err == nil {
			out = append(out, n)
		} else if word != "" {
			out = append(out, api.PodID(word))
			slices.Sort(out)
		}
	}
	return out
}

func (p *player) message(a args, body *wire.Envelope) {
	from := p.store.table.OwnerOf(a.values["queue"])
	if f := a.values["from"]; f != "" {
		from = api.Incarnation(f)
	}
	p.step(Message{From: from, Body: body})
}
