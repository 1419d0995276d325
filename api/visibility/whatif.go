package visibility

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// WhatIf says what other specs of Queues would do, and how a gang stands, and would. It is the answer in JSON; fields may be added.
type WhatIf struct {
	Changes    []string       `json:"changes,omitempty"` // as they were asked for
	Planned    string         `json:"planned,omitempty"` // likewise, a gang that does not exist
	Queues     []QueueOutlook `json:"queues,omitempty"`  // that the changes name, and others that would differ
	MoreQueues int            `json:"moreQueues,omitempty"`
	Gangs      []GangOutlook  `json:"gangs,omitempty"` // that were asked about, and others that would begin or cease to have gangs evicted
	MoreGangs  int            `json:"moreGangs,omitempty"`
}

// QueueOutlook is what a queue has and would have.
type QueueOutlook struct {
	Queue  string       `json:"queue"`
	Before QueueInForce `json:"before"`
	After  QueueInForce `json:"after"`
}

// QueueInForce is what the status of a queue says.
type QueueInForce struct {
	Amounts       []QueueResource `json:"amounts,omitempty"`
	WeightedShare int             `json:"weightedShare"`
	Message       string          `json:"message,omitempty"` // of its condition
}

// GangOutlook is how a gang stands and would stand.
type GangOutlook struct {
	Gang    string   `json:"gang,omitempty"` // empty for one that the user may not see, and for the planned one
	Queue   string   `json:"queue,omitempty"`
	Planned bool     `json:"planned,omitempty"`
	Before  Outlook  `json:"before"`
	After   *Outlook `json:"after,omitempty"` // if there are changes
}

// States of an Outlook.
const (
	StateUnknown = "Unknown" // it has not asked for quota
	StateCharged = "Charged"
	StateGranted = "Granted" // in its turn
	StateDenied  = "Denied"
)

// Outlook is how a gang stands.
type Outlook struct {
	State    string `json:"state"`
	Message  string `json:"message,omitempty"` // why it is denied
	Lacks    *Lack  `json:"lacks,omitempty"`
	Position int    `json:"position,omitempty"` // among the requests of its queue
	Waiting  int    `json:"waiting,omitempty"`  // how many these are
	Order    *int64 `json:"order,omitempty"`    // the value of its queue's spec.order for it
	Further  string `json:"further,omitempty"`  // why the pods that follow would be denied
	Exposed  string `json:"exposed,omitempty"`  // whether it may be evicted for others
	Standing
	Toll *Toll `json:"toll,omitempty"` // if others may be evicted for it

	// Who would be granted quota before it, which counts in the above: those that the user may get, and how many there
	// are.
	Ahead      []string `json:"ahead,omitempty"`
	AheadTotal int      `json:"aheadTotal,omitempty"`
}

// Toll is who would be evicted first for a gang, as far as quota decides. Amounts are for those who may get all Queues.
type Toll struct {
	Rule       string            `json:"rule"`    // Reclaim: from other queues; Preempt: of lower priority in its own
	Victims    int               `json:"victims"` // gangs
	Names      []string          `json:"names,omitempty"`
	Shrinkable int               `json:"shrinkable,omitempty"` // of them run with more pods than their minimum, and may lose only those
	Candidates int               `json:"candidates"`           // among which the home of the gang chooses
	Pods       int               `json:"pods,omitempty"`
	Freed      map[string]string `json:"freed,omitempty"`
	CoreHours  float64           `json:"coreHours,omitempty"` // that they have used
}

// maxWord is how much of a text is repeated that cannot be read.
const maxWord = 80

const (
	never          = string(v1beta1.PreemptNever)
	maxPlannedPods = 100_000
)

// whatIf says what other specs of Queues would do, and how a gang would stand.
func (s *server) whatIf(ctx context.Context, r *http.Request) (any, error) {
	query := r.URL.Query()
	ask := &wire.WhatIfRequest{Queue: query.Get("queue")}
	names := map[string]bool{}
	for _, text := range query["change"] {
		c, err := ParseChange(text)
		if err != nil {
			return nil, problem{http.StatusBadRequest, err.Error()}
		}
		ask.Changes = append(ask.Changes, c)
		names[c.Queue] = true
	}
	namespace, name, isGang := strings.Cut(query.Get("gang"), "/")
	behalf := cmp.Or(r.PathValue("namespace"), query.Get("namespace"))
	if text := query.Get("planned"); text != "" {
		var err error
		if ask.Planned, err = ParsePlanned(text, behalf); err != nil {
			return nil, problem{http.StatusBadRequest, err.Error()}
		}
		names[ask.Planned.Queue] = true
	}
	if ask.Queue != "" {
		if err := api.ValidatePath(ask.Queue); err != nil {
			return nil, problem{http.StatusBadRequest, err.Error()}
		}
		names[ask.Queue] = true
	}
	subjects := 0
	for _, is := range []bool{isGang, ask.Queue != "", ask.Planned != nil} {
		if is {
			subjects++
		}
	}
	switch {
	case subjects > 1:
		return nil, problem{http.StatusBadRequest, "one may be asked about at a time: gang, queue or planned"}
	case len(ask.Changes) == 0 && ask.Planned == nil:
		return nil, problem{http.StatusBadRequest, "nothing is supposed: give change=QUEUE:FIELD=VALUE, or planned"}
	case behalf != "" && len(validation.IsDNS1123Label(behalf)) > 0:
		return nil, problem{http.StatusBadRequest, "that is no namespace"}
	case isGang && (len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0):
		return nil, problem{http.StatusBadRequest, "gang names no object: it is NAMESPACE/NAME"}
	}
	who, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	v := &view{s: s, ctx: ctx, who: who}
	for _, queue := range api.SortedKeys(names) {
		if err := v.knows(queue, behalf); err != nil {
			return nil, err
		}
	}
	if p := ask.Planned; p != nil { // what the namespace may use is told
		if err := s.mayUse(ctx, who, p.Namespace); err != nil {
			return nil, err
		}
	}
	title := ""
	if isGang {
		reply, err := s.find(ctx, who, namespace, name)
		if err != nil {
			return nil, err
		}
		if ask.Queue, ask.GangUid, title = reply.GetQueue(), reply.GetGangUid(), reply.GetTitle(); ask.GangUid == "" || ask.Queue == "" {
			return nil, problem{http.StatusConflict, fmt.Sprintf("%s has no queue yet: ask again in a moment", title)}
		}
	}
	if ask.Tenant = who.tenant(); !s.whatIfs.Wait(ctx, ask.Tenant) {
		return nil, tooMany
	}
	said, err := s.WhatIf(ctx, ask)
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return nil, tooMany
	case status.Code(err) == codes.Unimplemented:
		return nil, problem{http.StatusNotImplemented, "the coordinator that leads is of an earlier version, and does not say what would be"}
	case err != nil:
		return nil, cannot("ask the coordinator", err)
	case said.GetInvalid() != "":
		return nil, problem{http.StatusUnprocessableEntity, said.GetInvalid()}
	}
	out := v.whatIfFrom(said, title)
	out.Changes, out.Planned = query["change"], query.Get("planned")
	return out, nil
}

// view is what a user may see of an answer.
type view struct {
	s        *server
	ctx      context.Context
	who      *user
	reviewed int
	all      map[string]bool // resources of which the user may get all
}

// reviewsAtMost bounds the reviews for one answer; what is not reviewed is not shown.
const reviewsAtMost = 40

func (v *view) may(verb, group, resource, namespace, name, denied string) error {
	return v.s.Reviews.authorise(v.ctx, v.who, authorization.ResourceAttributes{Verb: verb, Group: group,
		Resource: resource, Namespace: namespace, Name: name}, false, denied)
}

// knows returns an error unless the user may get a queue, or use it in a namespace.
func (v *view) knows(queue, namespace string) error {
	err := v.may("get", v1beta1.GroupName, "queues", "", queue,
		fmt.Sprintf("user %q may not get the Queue %q", v.who.Username, queue))
	if namespace == "" || code(err) != http.StatusForbidden {
		return err
	}
	_, err = v.s.standingFor(v.ctx, v.who, queue, namespace)
	return err
}

// get reports whether the user may get an object: all of its kind, or this one.
func (v *view) get(group, resource, namespace, name string) bool {
	if v.getAll(group, resource) {
		return true
	}
	v.reviewed++
	return v.reviewed <= reviewsAtMost && v.may("get", group, resource, namespace, name, "no") == nil
}

func (v *view) getAll(group, resource string) bool {
	all, known := v.all[group+"/"+resource]
	if !known {
		all = v.may("get", group, resource, "", "", "no") == nil
		if v.all == nil {
			v.all = map[string]bool{}
		}
		v.all[group+"/"+resource] = all
	}
	return all
}

func (v *view) gang(g *wire.GangRef) bool {
	if g.GetSingle() {
		return v.get("", "pods", g.GetNamespace(), g.GetName())
	}
	return v.get(groupOf(api.GroupKind(g.GetKind())), "podgroups", g.GetNamespace(), g.GetName())
}

// whatIfFrom makes a WhatIf of what the coordinator said. Queues and gangs are shown that the user may get. Title is that of the gang that was
// asked about, which may be unknown to the coordinator.
func (v *view) whatIfFrom(r *wire.WhatIfReply, title string) *WhatIf {
	w := &WhatIf{MoreQueues: int(r.GetQueuesTotal()), MoreGangs: int(r.GetGangsTotal())}
	for _, o := range r.GetQueues() {
		path := o.GetBefore().GetQueue()
		if !o.GetNamed() && !v.get(v1beta1.GroupName, "queues", "", path) {
			continue
		}
		w.MoreQueues--
		of := func(u *wire.QueueUsage) QueueInForce {
			return QueueInForce{Amounts: amountsOf(u), WeightedShare: int(u.GetWeightedShare()), Message: u.GetMessage()}
		}
		w.Queues = append(w.Queues, QueueOutlook{path, of(o.GetBefore()), of(o.GetAfter())})
	}
	for _, o := range r.GetGangs() {
		w.MoreGangs--
		g := o.GetGang()
		out := GangOutlook{Queue: g.GetQueue(), Planned: g != nil && g.GetUid() == ""}
		shown := g == nil || out.Planned || v.gang(g)
		switch {
		case g == nil:
			out.Gang = title
		case shown && !out.Planned:
			out.Gang = g.Title()
		}
		out.Before = *v.outlookFrom(o.GetBefore(), shown)
		if o.GetAfter() != nil {
			out.After = v.outlookFrom(o.GetAfter(), shown)
		}
		w.Gangs = append(w.Gangs, out)
	}
	return w
}

// outlookFrom makes an Outlook. What a gang requests, and how it stands, is its own; whether others may be evicted for it concerns them, too.
func (v *view) outlookFrom(o *wire.Outlook, shown bool) *Outlook {
	out := &Outlook{State: StateDenied, Toll: v.tollFrom(o.GetToll())}
	switch {
	case !o.GetKnown():
		out.State = StateUnknown
	case o.GetGranted():
		out.State = StateGranted
	case o.GetCharged() && o.GetPlace() == 0:
		out.State = StateCharged
	}
	if !shown {
		return out
	}
	out.Message, out.Position, out.Waiting, out.Further, out.Exposed = o.GetMessage(), int(o.GetPlace()), int(o.GetWaiting()), o.GetFurther(), o.GetExposed()
	out.Order, out.Standing = o.Order, standingOf(o.GetStanding(), usualSearch)
	out.AheadTotal = int(o.GetAheadTotal())
	if !o.GetGranted() && (o.GetStanding() == nil || o.GetShort() > 0 && len(out.Turns) == 0) {
		out.Position, out.Waiting = 0, 0 // it waits for an edit: it has no turn
	}
	for _, g := range o.GetAhead() {
		if v.gang(g) {
			out.Ahead = append(out.Ahead, g.Title())
		}
	}
	if o.GetShort() > 0 {
		out.Lacks = &Lack{o.GetQueue(), o.GetResource(), api.FormatAmount(o.GetResource(), o.GetShort())}
		if o.GetReason() == wire.DenyReason_DENY_SUPPLY {
			out.Lacks.Queue = ""
		}
	}
	return out
}

func (v *view) tollFrom(t *wire.Toll) *Toll {
	if t == nil {
		return nil
	}
	out := &Toll{Victims: int(t.GetGangsTotal()), Shrinkable: int(t.GetShrinkable()), Candidates: int(t.GetCandidates())}
	out.Rule = "Reclaim"
	if t.GetRule() == wire.Rule_RULE_PREEMPT {
		out.Rule = "Preempt"
	}
	for _, g := range t.GetGangs() {
		if v.gang(g) {
			out.Names = append(out.Names, g.Title())
		}
	}
	if !v.getAll(v1beta1.GroupName, "queues") {
		return out
	}
	out.Pods, out.CoreHours = int(t.GetPods()), float64(t.GetCoreSeconds()/36)/100
	for _, a := range t.GetFreed() {
		if out.Freed == nil {
			out.Freed = map[string]string{}
		}
		out.Freed[a.GetResource()] = api.FormatAmount(a.GetResource(), a.GetValue())
	}
	return out
}

// Text says all of it, for people.
func (w *WhatIf) Text(now time.Time) string {
	var b strings.Builder
	for _, c := range w.Changes {
		fmt.Fprintf(&b, "what if  %s\n", c)
	}
	if w.Planned != "" {
		fmt.Fprintf(&b, "gang     %s\n", w.Planned)
	}
	if len(w.Queues) > 0 {
		fmt.Fprintln(&b)
		w.table(&b)
	}
	if w.MoreQueues == 1 {
		fmt.Fprintln(&b, "and 1 more queue that is not shown")
	} else if w.MoreQueues > 1 {
		fmt.Fprintf(&b, "and %d more queues that are not shown\n", w.MoreQueues)
	}
	for _, g := range w.Gangs {
		title := g.Gang
		switch {
		case g.Planned:
			title = "the planned gang"
		case title == "":
			title = "a gang of another namespace"
		}
		if g.Queue != "" {
			title += " in queue " + g.Queue
		}
		fmt.Fprintf(&b, "\n%s\n", title)
		switch {
		case g.After == nil:
			g.Before.text(&b, "  ", now)
		case reflect.DeepEqual(g.Before, *g.After):
			fmt.Fprintln(&b, "  now, and then")
			g.Before.text(&b, "    ", now)
		default:
			fmt.Fprintln(&b, "  now")
			g.Before.text(&b, "    ", now)
			fmt.Fprintln(&b, "  then")
			g.After.text(&b, "    ", now)
		}
	}
	if w.MoreGangs > 0 {
		fmt.Fprintf(&b, "\nand %d more gangs for which others would begin or cease to be evicted\n", w.MoreGangs)
	}
	fmt.Fprintln(&b, "\nNothing was changed.")
	return b.String()
}

// table has a row for each resource of a queue of which something would differ, and no column that is empty.
func (w *WhatIf) table(b *strings.Builder) {
	table := [][]string{{"QUEUE", "WEIGHTED SHARE", "RESOURCE", "CHARGED", "WANTED", "GUARANTEE", "DESERVED", "FAIR SHARE",
		"CAPABILITY"}}
	cell := func(before, after string) string {
		if before == "" {
			before = "-"
		}
		if after == "" {
			after = "-"
		}
		if before == after {
			return before
		}
		return before + " -> " + after
	}
	var words []string
	for _, q := range w.Queues {
		var rows [][]string
		before, after := byResource(q.Before.Amounts), byResource(q.After.Amounts)
		names := map[string]bool{}
		for what := range before {
			names[what] = true
		}
		for what := range after {
			names[what] = true
		}
		for _, what := range api.SortedKeys(names) {
			x, y := before[what], after[what]
			if x.Resource, y.Resource = what, what; x != y {
				rows = append(rows, []string{what, cell(x.Charged, y.Charged), cell(x.Wanted, y.Wanted), cell(x.Guarantee, y.Guarantee), cell(x.Deserved, y.Deserved),
					cell(x.FairShare, y.FairShare), cell(x.Capability, y.Capability)})
			}
		}
		if len(rows) == 0 {
			rows = [][]string{{"-", "-", "-", "-", "-", "-", "-"}}
		}
		for i, row := range rows {
			queue, share := "", ""
			if i == 0 {
				queue, share = q.Queue, cell(strconv.Itoa(q.Before.WeightedShare), strconv.Itoa(q.After.WeightedShare))
			}
			table = append(table, append([]string{queue, share}, row...))
		}
		if q.Before.Message != q.After.Message {
			words = append(words, fmt.Sprintf("queue %s would say: %s", q.Queue, q.After.Message))
		}
	}
	for column := len(table[0]) - 1; column > 2; column-- {
		if !slices.ContainsFunc(table[1:], func(row []string) bool { return row[column] != "-" }) {
			for i, row := range table {
				table[i] = slices.Delete(row, column, column+1)
			}
		}
	}
	aligned := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, row := range table {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}
	_ = aligned.Flush()
	for _, line := range words {
		fmt.Fprintln(b, line)
	}
}

func byResource(list []QueueResource) map[string]QueueResource {
	out := map[string]QueueResource{}
	for _, q := range list {
		out[q.Resource] = q
	}
	return out
}

// text says how a gang stands.
func (o *Outlook) text(b *strings.Builder, indent string, now time.Time) {
	row := func(what, format string, args ...any) {
		fmt.Fprintf(b, "%s%-8s %s\n", indent, what, fmt.Sprintf(format, args...))
	}
	switch {
	case o.State == StateUnknown:
		row("quota", "it has not asked for it yet")
	case o.State == StateCharged:
		row("quota", "it is charged")
	case o.State == StateGranted:
		row("quota", "it is granted in its turn%s", o.after(", after "))
	case o.AheadTotal > 0:
		row("quota", "%s: %s", o.after("after "), o.Message)
	case o.Message != "":
		row("quota", "%s", o.Message)
	default:
		row("quota", "it is denied")
	}
	if words := placeOf(o.Position, o.Waiting, o.Order, ""); words != "" {
		row("order", "%s", words)
	}
	for _, line := range o.lines() {
		row("turn", "%s", line)
	}
	if o.Further != "" {
		row("then", "the pods that follow are denied: %s", o.Further)
	}
	if words := o.kept(); words != "" {
		row("kept", "%s", words)
	}
	if words := o.evictions(now); words != "" {
		row("claims", "%s", words)
	}
	if o.Toll != nil {
		row("victims", "%s", o.Toll)
	}
	if o.Exposed != "" {
		row("exposed", "%s", o.Exposed)
	}
}

// after names who would be granted quota before it, behind some words; nothing if nobody is.
func (o *Outlook) after(words string) string {
	if o.AheadTotal == 0 {
		return ""
	}
	named := strings.Join(o.Ahead, ", ")
	switch more := o.AheadTotal - len(o.Ahead); {
	case more == 0:
		return words + named
	case named != "":
		return fmt.Sprintf("%s%s and %d more", words, named, more)
	case more == 1:
		return words + "a gang of another namespace"
	default:
		return fmt.Sprintf("%s%d gangs", words, more)
	}
}

func (t *Toll) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "about %d of the %d gangs that may be evicted for it", t.Victims, t.Candidates)
	if t.Pods > 0 {
		fmt.Fprintf(&b, ", with %d pods", t.Pods)
	}
	if t.CoreHours > 0 {
		fmt.Fprintf(&b, " that have used %.2f core-hours", t.CoreHours)
	}
	if t.Shrinkable > 0 {
		fmt.Fprintf(&b, "; %d of them may lose single pods and run on", t.Shrinkable)
	}
	var freed []string
	for _, what := range api.SortedKeys(t.Freed) {
		freed = append(freed, what+"="+t.Freed[what])
	}
	if len(freed) > 0 {
		fmt.Fprintf(&b, "; they have %s", strings.Join(freed, " "))
	}
	if len(t.Names) > 0 {
		fmt.Fprintf(&b, ": %s", strings.Join(slices.Clone(t.Names), ", "))
		if more := t.Victims - len(t.Names); more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
	}
	return b.String()
}
