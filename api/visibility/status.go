package visibility

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// Bounds of a status: together less than MaxAnswer.
const (
	MaxGangs       = 1000 // that wait; further ones are counted
	maxShards      = 1000
	maxChanges     = 20      // of the table that are told
	maxQueueBytes  = 2 << 20 // of queues, about
	maxErrorBytes  = 300     // of what a process answers that does not say its status
	maxMessage     = 1024
	MaxAnswer      = 32 << 20 // bytes of any answer: JSON needs up to six for one
	askedAtOnce    = 32       // processes
	answeredWithin = 2 * time.Second
)

// Status says who is there, who owns what, how full the queues are, and which gangs wait. It is the answer in JSON; fields may be added.
type Status struct {
	Coordinator *Coordinator `json:"coordinator,omitempty"` // that leads, if one does
	Table       *Table       `json:"table,omitempty"`       // if there is one yet

	Shards     []Shard `json:"shards"`
	MoreShards int     `json:"moreShards,omitempty"` // that are not listed
	Queues     []Queue `json:"queues"`
	MoreQueues int     `json:"moreQueues,omitempty"`
	Gangs      []Gang  `json:"gangs"` // that wait, the oldest first
	MoreGangs  int     `json:"moreGangs,omitempty"`
}

// Coordinator is the one that leads.
type Coordinator struct {
	Name        string     `json:"name"`
	Incarnation string     `json:"incarnation"`
	Term        int64      `json:"term"`
	Speaks      string     `json:"speaks"`          // version of the protocol, and of the program
	Error       string     `json:"error,omitempty"` // why it does not answer
	Since       *time.Time `json:"since,omitempty"` // it leads
}

// Table is the table of who owns which bucket.
type Table struct {
	Epoch   uint64 `json:"epoch"`
	Buckets int    `json:"buckets"`

	Changes []Change `json:"changes,omitempty"` // the latest first, at most 20
}

// Change is an epoch of the table at which buckets changed hands that have not since, and who has them.
type Change struct {
	Epoch   uint64 `json:"epoch"`
	Shard   string `json:"shard,omitempty"` // empty: nobody
	Buckets int    `json:"buckets"`
}

// States of a shard.
const (
	ShardOK       = "ok"
	ShardDraining = "draining"
	ShardSilent   = "silent" // it is registered and does not answer
	ShardGone     = "gone"   // it is not registered any more, and its buckets are being reassigned
)

// Shard is one that is registered, or whose buckets are being reassigned.
type Shard struct {
	Name        string     `json:"name"`
	Incarnation string     `json:"incarnation"`
	State       string     `json:"state"`
	Error       string     `json:"error,omitempty"` // why it does not answer
	Since       *time.Time `json:"since,omitempty"` // it runs
	Speaks      string     `json:"speaks,omitempty"`
	Buckets     int        `json:"buckets"`
	Nodes       int        `json:"nodes"`
	OutOfSync   int        `json:"outOfSync"`         // nodes
	FreeCPU     string     `json:"freeCPU,omitempty"` // of its nodes
	Gangs       int        `json:"gangs"`
	Waiting     int        `json:"waiting"` // of these, at most 1,000
	Intents     int        `json:"intents"`
}

// Queue is a queue with all below it.
type Queue struct {
	Name       string            `json:"name"`
	Charged    map[string]string `json:"charged,omitempty"`
	Capability map[string]string `json:"capability,omitempty"`
	Admitted   int               `json:"admitted"` // gangs
	Waiting    int               `json:"waiting"`
	Ready      string            `json:"ready"` // the reason of its condition
	Message    string            `json:"message,omitempty"`
}

// Gang is one that waits.
type Gang struct {
	Gang     string     `json:"gang"` // namespace and name
	Queue    string     `json:"queue"`
	State    string     `json:"state"`
	Reason   string     `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Pods     int        `json:"pods"`
	Bound    int        `json:"bound"`
	MinCount int        `json:"minCount"`

	uid string
}

// Scope is what somebody wants of a status.
type Scope struct {
	Queue string // that and all below it; empty: all
	Gang  string // namespace and name; empty: all
	Gangs int    // at most so many
}

// Check says which of it is out of bounds.
func (s Scope) Check() error {
	if s.Gangs < 0 || s.Gangs > MaxGangs {
		return problem{code: 400, text: fmt.Sprintf("%d gangs: between 0 and %d are listed", s.Gangs, MaxGangs)}
	}
	return nil
}

// Store reads the control store.
type Store interface {
	Table(context.Context) (*api.Table, error)
	Shards(context.Context) ([]*wire.ShardRecord, error)
	Leader(context.Context) (*wire.LeaderRecord, int64, error)
}

// Ask calls a process for its status.
type Ask func(ctx context.Context, who api.Incarnation, address string) (*wire.StatusReply, error)

// Collect reads the control store and asks all processes that it names. A process that does not answer is part of the status.
func Collect(ctx context.Context, s Store, ask Ask, scope Scope) (*Status, error) {
	table, err := s.Table(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	leader, term, err := s.Leader(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(shards, func(a, b *wire.ShardRecord) int { return cmp.Compare(a.Name, b.Name) })
	out := &Status{Shards: []Shard{}, Queues: []Queue{}, Gangs: []Gang{}}
	if table != nil {
		out.Table = &Table{uint64(table.Epoch), api.Buckets, changesOf(table)}
	}
	if n := len(shards) - maxShards; n > 0 {
		out.MoreShards, shards = n, shards[:maxShards]
	}
	out.Shards = make([]Shard, len(shards))
	gangs := waiting{scope: scope}

	c := calls{turn: make(chan struct{}, askedAtOnce)}
	call := func(who, address string, took func(*wire.StatusReply, error)) {
		c.call(ctx, func(ctx context.Context) { took(ask(ctx, api.Incarnation(who), address)) })
	}
	if leader != nil {
		leads := &Coordinator{Name: leader.Name, Incarnation: leader.Incarnation, Term: term, Speaks: speaks(leader)}
		out.Coordinator = leads
		call(leader.Incarnation, leader.Address, func(r *wire.StatusReply, err error) {
			if err != nil {
				leads.Error = words(err)
				return
			}
			leads.Since = sinceOf(r)
			out.Queues, out.MoreQueues = queuesOf(r, scope)
		})
	}
	for i, record := range shards {
		call(record.Incarnation, record.Address, func(r *wire.StatusReply, err error) {
			out.Shards[i] = shardOf(record, table, r, err)
			gangs.add(r.GetGangs())
		})
	}
	c.all.Wait()
	if table != nil {
		for _, m := range table.Members {
			registered := slices.ContainsFunc(shards, func(s *wire.ShardRecord) bool { return s.Incarnation == string(m.Incarnation) })
			if n := table.Owned(m.Incarnation); n > 0 && !registered && out.MoreShards == 0 {
				out.Shards = append(out.Shards, Shard{Name: m.Name, Incarnation: string(m.Incarnation), State: ShardGone, Buckets: n})
			}
		}
	}
	out.Gangs, out.MoreGangs = gangs.best, gangs.matched-len(gangs.best)
	return out, nil
}

// calls are questions to processes, some at a time.
type calls struct {
	all  sync.WaitGroup
	turn chan struct{}
}

func (c *calls) call(ctx context.Context, ask func(context.Context)) {
	c.turn <- struct{}{}
	c.all.Go(func() {
		defer func() { <-c.turn }()
		ctx, cancel := context.WithTimeout(ctx, answeredWithin)
		defer cancel()
		ask(ctx)
	})
}

// shardOf says what is known of a shard; err is why it does not answer.
func shardOf(record *wire.ShardRecord, table *api.Table, r *wire.StatusReply, err error) Shard {
	who := api.Incarnation(record.Incarnation)
	s := Shard{Name: record.Name, Incarnation: record.Incarnation, State: ShardOK, Speaks: speaks(record), Buckets: table.Owned(who)}
	if record.Draining {
		s.State = ShardDraining
	}
	if err != nil {
		s.State, s.Error = ShardSilent, words(err)
		return s
	}
	s.Since = sinceOf(r)
	s.Nodes, s.OutOfSync = int(r.Summary.GetNodes()), int(r.Summary.GetOutOfSync())
	s.Gangs, s.Waiting, s.Intents = int(r.GangsTotal), len(r.Gangs), int(r.Intents)
	for _, a := range r.Summary.GetFree() {
		if a.Resource == "cpu" {
			s.FreeCPU = api.FormatAmount("cpu", a.Value)
		}
	}
	return s
}

func sinceOf(r *wire.StatusReply) *time.Time {
	if r.GetSinceUnixMs() <= 0 {
		return nil // an earlier version does not say
	}
	at := time.UnixMilli(r.GetSinceUnixMs()).UTC()
	return &at
}

// changesOf returns the latest changes of a table that are left in it.
func changesOf(t *api.Table) (out []Change) {
	type of struct {
		epoch api.Epoch
		owner uint16
	}
	counts := map[of]int{}
	for b, epoch := range t.Changed {
		counts[of{epoch, t.Owners[b]}]++
	}
	for key, n := range counts {
		c := Change{Epoch: uint64(key.epoch), Buckets: n}
		if int(key.owner) < len(t.Members) {
			c.Shard = t.Members[key.owner].Name
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(a.Shard, b.Shard), cmp.Compare(b.Buckets, a.Buckets))
	})
	return slices.Clip(out[:min(len(out), maxChanges)])
}

// speaks is the version that a process announces.
func speaks(r wire.Announced) string {
	return strings.TrimSpace(fmt.Sprintf("protocol %d %s", wire.ProtocolOf(r), r.GetVersion()))
}

// queuesOf returns the queues in a scope of a coordinator's status, and how many there was no room for.
func queuesOf(r *wire.StatusReply, scope Scope) (out []Queue, left int) {
	left, out = int(r.QueuesTotal)-len(r.Queues), []Queue{}
	size := 0
	for _, q := range r.Queues {
		if scope.Queue != "" && !api.Under(q.Queue, scope.Queue) {
			continue
		}
		charged, errCharged := wire.ToResources(q.Charged)
		limits, errLimits := wire.ToResources(q.Capability)
		if errCharged != nil || errLimits != nil {
			continue
		}
		row := Queue{Name: q.Queue, Charged: map[string]string{}, Capability: map[string]string{}, Admitted: int(q.Admitted), Waiting: int(q.Waiting),
			Ready: q.ReadyReason, Message: api.Shorten(q.Message, maxMessage)}
		size += 200 + len(row.Name) + len(row.Message)
		for _, a := range charged {
			row.Charged[a.Resource] = api.FormatAmount(a.Resource, a.Value)
			size += len(a.Resource) + 30
		}
		for _, a := range limits {
			row.Capability[a.Resource] = api.FormatAmount(a.Resource, a.Value)
			size += len(a.Resource) + 30
		}
		if size > maxQueueBytes {
			left++
			continue
		}
		out = append(out, row)
	}
	return out, left
}

// waiting keeps the oldest of the gangs in a scope, as many as it wants.
type waiting struct {
	scope   Scope
	mu      sync.Mutex
	best    []Gang
	matched int
}

// add adds those of one shard.
func (w *waiting) add(gangs []*wire.GangStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range gangs {
		title, queue := g.GetGang().Title(), g.GetGang().GetQueue()
		if w.scope.Gang != "" && title != w.scope.Gang || w.scope.Queue != "" && !api.Under(queue, w.scope.Queue) {
			continue
		}
		w.matched++
		row := Gang{Gang: title, Queue: queue, State: g.State, Reason: g.Reason, Message: api.Shorten(g.Message, maxMessage),
			Pods: int(g.Pods), Bound: int(g.Bound), MinCount: int(g.MinCount), uid: g.GetGang().GetUid()}
		if g.SinceUnixMs > 0 {
			at := time.UnixMilli(g.SinceUnixMs).UTC()
			row.Since = &at
		}
		w.best = append(w.best, row)
	}
	slices.SortFunc(w.best, func(a, b Gang) int { return cmp.Or(a.age().Compare(b.age()), cmp.Compare(a.uid, b.uid)) })
	w.best = slices.Clip(w.best[:min(len(w.best), w.scope.Gangs)])
}

func (g *Gang) age() time.Time {
	if g.Since == nil {
		return time.Time{}
	}
	return *g.Since
}

// Text says all of it, for people. Wide adds incarnations, and the messages that queues usually have; versions are
// shown also where not all are the same, as while a new one is rolled out.
func (s *Status) Text(out io.Writer, now time.Time, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	switch c := s.Coordinator; {
	case c == nil:
		fmt.Fprintln(w, "COORDINATOR\tnone: nothing is admitted until one is elected")
	case c.Error != "":
		fmt.Fprintf(w, "COORDINATOR\t%s\tterm %d\t%s\tdoes not answer: %s\n", c.Name, c.Term, c.Speaks, c.Error)
	default:
		fmt.Fprintf(w, "COORDINATOR\t%s\tterm %d\t%s\tanswers\n", c.Name, c.Term, c.Speaks)
	}
	if s.Table != nil {
		fmt.Fprintf(w, "TABLE\tepoch %d\t%d buckets\n", s.Table.Epoch, s.Table.Buckets)
	} else {
		fmt.Fprintln(w, "TABLE\tnone yet")
	}
	s.shards(w, wide)
	more(w, s.MoreShards)
	s.queues(w, wide)
	s.gangs(w, now)
	return w.Flush()
}

func (s *Status) shards(w io.Writer, wide bool) {
	versions := map[string]bool{}
	if c := s.Coordinator; c != nil {
		versions[c.Speaks] = true
	}
	for i := range s.Shards {
		versions[s.Shards[i].Speaks] = true
	}
	delete(versions, "") // of what is gone
	column := func(shown bool, text string) string {
		if shown {
			return text + "\t"
		}
		return ""
	}
	row := func(name, incarnation, figures, version, state string) {
		fmt.Fprintf(
			w,
			"%s\t%s%s\t%s%s\n",
			name,
			column(wide, incarnation),
			figures,
			column(wide || len(versions) > 1, version),
			state,
		)
	}
	fmt.Fprintln(w)
	row("SHARD", "INCARNATION", "BUCKETS\tNODES\tOUT OF SYNC\tCPU FREE\tGANGS\tWAITING\tINTENTS", "VERSION", "STATE")
	for i := range s.Shards {
		h := &s.Shards[i]
		unknown := fmt.Sprintf("%d\t\t\t\t\t\t", h.Buckets)
		switch h.State {
		case ShardGone:
			row(h.Name, h.Incarnation, unknown, "", "gone: its buckets are being reassigned")
		case ShardSilent:
			row(h.Name, h.Incarnation, unknown, h.Speaks, "does not answer: "+h.Error)
		default:
			row(
				h.Name,
				h.Incarnation,
				fmt.Sprintf("%d\t%d\t%d\t%s\t%d\t%d\t%d", h.Buckets, h.Nodes, h.OutOfSync, cmp.Or(h.FreeCPU, "-"),
					h.Gangs, h.Waiting, h.Intents),
				h.Speaks,
				h.State,
			)
		}
	}
}

func more(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %d more\n", n)
	}
}

func (s *Status) queues(w io.Writer, wide bool) {
	if len(s.Queues) == 0 && s.MoreQueues == 0 {
		return
	}
	fmt.Fprintln(w, "\nQUEUE\tCPU\tMEMORY\tOTHER\tADMITTED\tWAITING\tREADY\tMESSAGE")
	for i := range s.Queues {
		q := &s.Queues[i]
		names := map[string]bool{}
		for what := range q.Charged {
			names[what] = true
		}
		for what := range q.Capability {
			names[what] = true
		}
		var other []string
		for _, what := range api.SortedKeys(names) {
			if _, limited := q.Capability[what]; what != "cpu" && what != "memory" && (limited || cmp.Or(q.Charged[what], "0") != "0") {
				other = append(other, what+" "+q.ofLimit(what))
			}
		}
		message := q.Message
		if !wide && message == v1beta1.MessageReady {
			message = ""
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", strings.Repeat("  ", len(api.Lineage(q.Name))-1), q.Name, q.ofLimit("cpu"), q.ofLimit("memory"),
			strings.Join(other, " "), q.Admitted, q.Waiting, q.Ready, message)
	}
	more(w, s.MoreQueues)
}

// ofLimit is what is charged of a resource, and of how much.
func (q *Queue) ofLimit(what string) string {
	s := cmp.Or(q.Charged[what], "0")
	if limit, limited := q.Capability[what]; limited {
		s += "/" + limit
	}
	return s
}

func (s *Status) gangs(w io.Writer, now time.Time) {
	if len(s.Gangs) == 0 && s.MoreGangs == 0 {
		fmt.Fprintln(w, "\nNo gang is waiting.")
		return
	}
	fmt.Fprintf(w, "\nWAITING GANG\tQUEUE\tPODS\tBOUND\tSTATE\tFOR\tWHY\n")
	for i := range s.Gangs {
		g := &s.Gangs[i]
		why, waited := g.Reason, "-"
		if g.Message != "" {
			why += ": " + g.Message
		}
		if g.Since != nil {
			waited = now.Sub(*g.Since).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%d/%d\t%d\t%s\t%s\t%s\n", g.Gang, g.Queue, g.Pods, g.MinCount, g.Bound, g.State, waited, why)
	}
	more(w, s.MoreGangs)
}
