package visibility

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// Standing is how a gang that waits stands in the order, and by whose end it may start. It is empty if the coordinator did not say.
type Standing struct {
	Turns    []Turn     `json:"turns,omitempty"`    // of its queue and of the ancestors below root
	Eviction string     `json:"eviction,omitempty"` // from whom it takes what it lacks, or why from nobody
	Then     string     `json:"then,omitempty"`     // what happens then,
	At       *time.Time `json:"at,omitempty"`       // and when

	// Of a gang from which quota is kept for one that has waited longer: the longest limit with which that is lent to
	// it, or why that is lent to nobody.
	Lent      string `json:"lent,omitempty"`
	LentNever string `json:"lentNever,omitempty"`
}

// kept says to whom that is lent, "" where nothing is said.
func (s *Standing) kept() string {
	switch {
	case s.Lent != "":
		return "it is lent to gangs with a limit of " + s.Lent + " or less (maxRuntimeSeconds)"
	case s.LentNever != "":
		return "it is lent to nobody now: " + s.LentNever
	}
	return ""
}

// Bands of a queue, from the first to the last.
const (
	BandGuarantee = "WithinGuarantee"
	BandDeserved  = "WithinDeserved"
	BandAbove     = "AboveDeserved"
)

// Turn is the place of a queue among its siblings in which gangs wait, by what it would have with the gang.
type Turn struct {
	Queue string `json:"queue"`
	Place int    `json:"place"`
	Of    int    `json:"of"`
	Band  string `json:"band,omitempty"`

	// Of the queue of the gang alone.
	Resource      string `json:"resource,omitempty"` // that decides about the band, empty if the queue names none that the gang requests
	Has           string `json:"has,omitempty"`
	Requests      string `json:"requests,omitempty"`
	Limit         string `json:"limit,omitempty"`
	WeightedShare int    `json:"weightedShare,omitempty"` // above what it deserves, in thousandths
}

// standingOf reads what the coordinator says of a gang that looks for nodes for so long before its limit begins.
func standingOf(r *wire.StandingReply, search time.Duration) Standing {
	s := Standing{Eviction: r.GetEviction(), Then: r.GetThen(), LentNever: r.GetLentNever()}
	if ms := r.GetLentMs(); ms > 0 {
		if limit := (time.Duration(ms)*time.Millisecond - search).Truncate(time.Second); limit > 0 {
			s.Lent = limit.String()
		} else {
			s.LentNever = "it may be enough before another gang has found nodes"
		}
	}
	if ms := r.GetThenUnixMs(); ms > 0 {
		at := time.UnixMilli(ms).UTC()
		s.At = &at
	}
	for _, t := range r.GetTurns() {
		turn := Turn{Queue: t.GetQueue(), Place: int(t.GetPlace()), Of: int(t.GetOf()), WeightedShare: int(t.GetWeightedShare())}
		switch t.GetBand() {
		case wire.Band_BAND_GUARANTEE:
			turn.Band = BandGuarantee
		case wire.Band_BAND_DESERVED:
			turn.Band = BandDeserved
		case wire.Band_BAND_ABOVE:
			turn.Band = BandAbove
		}
		if what := t.GetResource(); what != "" {
			turn.Resource, turn.Has, turn.Requests, turn.Limit = what, api.FormatAmount(what, t.GetHas()), api.FormatAmount(what, t.GetRequests()), api.FormatAmount(what, t.GetLimit())
		}
		s.Turns = append(s.Turns, turn)
	}
	return s
}

// lines says the turns, for people: of queues that compete, or are entitled to something.
func (s *Standing) lines() (out []string) {
	for i, t := range s.Turns {
		if t.Of <= 1 && t.Band == BandAbove && t.Resource == "" {
			continue
		}
		var b strings.Builder
		if parent := api.Parent(t.Queue); t.Of > 1 {
			fmt.Fprintf(&b, "queue %q is %s of the %d below %q in which gangs wait", t.Queue, ordinal(t.Place), t.Of, parent)
		} else {
			fmt.Fprintf(&b, "queue %q is the only one below %q in which gangs wait", t.Queue, parent)
		}
		switch t.Band {
		case BandGuarantee:
			b.WriteString(": within its guarantee")
		case BandDeserved:
			b.WriteString(": within what it deserves")
		case BandAbove:
			b.WriteString(": above what it deserves")
		}
		switch {
		case t.Resource != "":
			fmt.Fprintf(&b, " (%s %s + %s of %s)", t.Resource, t.Has, t.Requests, t.Limit)
		case i == 0 && t.Band == BandAbove:
			b.WriteString(" (nothing of what the gang requests)")
		}
		if t.WeightedShare > 0 {
			fmt.Fprintf(&b, ", with a weighted share of %d", t.WeightedShare)
		}
		out = append(out, b.String())
	}
	return out
}

// evictions says by whose end the gang may start.
func (s *Standing) evictions(now time.Time) string {
	words := s.Eviction
	if s.Then != "" {
		words += ", " + s.Then
	}
	switch {
	case s.At == nil:
	case s.At.After(now):
		words += " in " + s.At.Sub(now).Round(time.Second).String()
	default:
		words += " now"
	}
	return words
}

// WhyQueue says what a queue has and wants, which of its gangs is next, and which claims concern it. It is the answer in JSON; fields may be
// added.
type WhyQueue struct {
	QueueStands
	WeightedShare int           `json:"weightedShare"` // as in its status
	Next          *NextGang     `json:"next,omitempty"`
	Claims        []Claim       `json:"claims,omitempty"`
	MoreClaims    int           `json:"moreClaims,omitempty"`
	Ancestors     []QueueStands `json:"ancestors,omitempty"` // the parent first, if the question was put in a namespace
}

// QueueResource is what a queue has of a resource, in the words of its status. What is empty is not limited, or nothing.
type QueueResource struct {
	Resource   string `json:"resource"`
	Charged    string `json:"charged,omitempty"`
	Yielding   string `json:"yielding,omitempty"`
	Promised   string `json:"promised,omitempty"`
	Wanted     string `json:"wanted,omitempty"`
	FairShare  string `json:"fairShare,omitempty"`
	Guarantee  string `json:"guarantee,omitempty"`
	Deserved   string `json:"deserved,omitempty"`
	Capability string `json:"capability,omitempty"`
}

// NextGang is the gang that is next in a queue, or below it. It is empty for one that the user may not see: what it requests is its own.
type NextGang struct {
	Gang  string `json:"gang,omitempty"`
	Lacks *Lack  `json:"lacks,omitempty"`
	Standing
}

// Claim is one that gives to a queue or takes from it.
type Claim struct {
	Gang    string `json:"gang,omitempty"` // for which others are evicted; empty for one that the user may not see
	Victims int    `json:"victims"`        // that are not gone yet; if it takes from the queue, those of the queue
	Takes   bool   `json:"takes"`
}

// queueFromReply makes a WhyQueue of what the coordinator said. Gangs are named that the user may see.
func queueFromReply(r *wire.StandingReply, mayGet func(*wire.GangRef) bool) *WhyQueue {
	name := func(g *wire.GangRef) string {
		if !mayGet(g) {
			return ""
		}
		return g.Title()
	}
	u := r.GetUsage()
	w := &WhyQueue{QueueStands: standsFrom(u), WeightedShare: int(u.GetWeightedShare())}
	if g := r.GetNext(); g != nil {
		w.Next = &NextGang{Gang: name(g)}
		if w.Next.Gang != "" {
			w.Next.Standing = standingOf(r, usualSearch)
		}
		if w.Next.Gang != "" && r.GetShort() > 0 {
			w.Next.Lacks = &Lack{r.GetShortQueue(), r.GetShortResource(), api.FormatAmount(r.GetShortResource(), r.GetShort())}
		}
	}
	for _, n := range r.GetClaims() {
		w.Claims = append(w.Claims, Claim{name(n.GetGang()), int(n.GetVictims()), n.GetTakes()})
	}
	w.MoreClaims = int(r.GetClaimsTotal()) - len(w.Claims)
	for _, u := range r.GetAncestors() {
		w.Ancestors = append(w.Ancestors, standsFrom(u))
	}
	return w
}

// amountsOf lists what a queue has of each resource.
func amountsOf(u *wire.QueueUsage) (out []QueueResource) {
	of := map[string]*QueueResource{}
	for _, list := range []struct {
		amounts []*wire.Amount
		field   func(*QueueResource) *string
	}{
		{u.GetCharged(), func(q *QueueResource) *string { return &q.Charged }}, {u.GetYielding(), func(q *QueueResource) *string { return &q.Yielding }},
		{u.GetPromised(), func(q *QueueResource) *string { return &q.Promised }}, {u.GetWanted(), func(q *QueueResource) *string { return &q.Wanted }},
		{u.GetFairShare(), func(q *QueueResource) *string { return &q.FairShare }}, {u.GetGuarantee(), func(q *QueueResource) *string { return &q.Guarantee }},
		{u.GetDeserved(), func(q *QueueResource) *string { return &q.Deserved }}, {u.GetCapability(), func(q *QueueResource) *string { return &q.Capability }},
	} {
		for _, a := range list.amounts {
			what := a.GetResource()
			if of[what] == nil {
				of[what] = &QueueResource{Resource: what}
			}
			*list.field(of[what]) = api.FormatAmount(what, a.GetValue())
		}
	}
	for _, what := range api.SortedKeys(of) {
		out = append(out, *of[what])
	}
	return out
}

// Text says all of it, for people.
func (w *WhyQueue) Text(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "queue %s: %s\n", w.Queue, w.Counts())
	rows(w.Rows(now)).write(&b)
	if len(w.Amounts) > 0 {
		table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "\nRESOURCE\tCHARGED\tYIELDING\tPROMISED\tWANTED\tFAIR SHARE\tGUARANTEE\tDESERVED\tCAPABILITY")
		for _, q := range w.Amounts {
			cells := []string{q.Resource, q.Charged, q.Yielding, q.Promised, q.Wanted, q.FairShare, q.Guarantee,
				q.Deserved, q.Capability}
			for i := range cells {
				if cells[i] == "" {
					cells[i] = "-"
				}
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
		_ = table.Flush()
	}
	w.above(&b)
	return b.String()
}

// Counts says how many gangs there are.
func (q *QueueStands) Counts() string {
	return fmt.Sprintf("%s charged, %s", gangsAre(q.Admitted), waits(q.Waiting))
}

// Rows says all but the amounts.
func (w *WhyQueue) Rows(now time.Time) []Row {
	var out rows
	row := out.add
	named := func(gang string) string {
		if gang == "" {
			return "a gang of another namespace"
		}
		return gang
	}
	row("ready", "%s: %s", w.Ready, w.Message)
	if w.WeightedShare > 0 {
		row("share", "%s", share(w.WeightedShare))
	}
	if n := w.Next; n != nil {
		lacks := ""
		if n.Lacks != nil {
			lacks = ": " + n.Lacks.String()
		}
		row("next", "%s%s", named(n.Gang), lacks)
		for _, line := range n.lines() {
			row("turn", "%s", line)
		}
		if words := n.kept(); words != "" {
			row("kept", "%s", words)
		}
		if words := n.evictions(now); words != "" {
			row("claims", "%s", words)
		}
	}
	for _, c := range w.Claims {
		if c.Takes {
			row("gives", "%d of its gangs %s evicted for %s in whole or in part, and not gone yet",
				c.Victims, are(c.Victims), named(c.Gang))
		} else {
			row("gets", "%s evicted for %s in whole or in part, and not gone yet", gangsAre(c.Victims), named(c.Gang))
		}
	}
	if w.MoreClaims > 0 {
		row("", "and %d more claims", w.MoreClaims)
	}
	return out
}

func gangsAre(n int) string {
	if n == 1 {
		return "1 gang is"
	}
	return fmt.Sprintf("%d gangs are", n)
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func waits(n int) string {
	if n == 1 {
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", n)
}

// share says a weighted share in words.
func share(thousandths int) string {
	return fmt.Sprintf("it borrows %.1f %% of what its parent may have, by weight; the smallest share goes first",
		float64(thousandths)/10)
}

// above says what the ancestors have.
func (w *WhyQueue) above(b *strings.Builder) {
	if len(w.Ancestors) == 0 {
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nABOVE IT\tCHARGED\tADMITTED\tWAITING\tREADY")
	for _, q := range w.Ancestors {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\n", q.Queue, charges(q.Amounts), q.Admitted, q.Waiting, q.Ready)
	}
	_ = table.Flush()
}

// standsFrom reads what a queue has.
func standsFrom(u *wire.QueueUsage) QueueStands {
	return QueueStands{Queue: u.GetQueue(), Ready: u.GetReadyReason(), Message: u.GetMessage(),
		Admitted: int(u.GetAdmitted()), Waiting: int(u.GetWaiting()), Amounts: amountsOf(u)}
}

// charges says in one line what is charged of each limit.
func charges(amounts []QueueResource) string {
	var out []string
	for _, a := range amounts {
		if a.Charged == "" && a.Capability == "" && a.Deserved == "" {
			continue
		}
		text := a.Resource + " 0"
		if a.Charged != "" {
			text = a.Resource + " " + a.Charged
		}
		if a.Capability != "" {
			text += "/" + a.Capability
		}
		if a.Deserved != "" && a.Deserved != a.Guarantee {
			text += " (deserves " + a.Deserved + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// OfQueue returns what the status of a Queue says.
func OfQueue(q *v1beta1.Queue) *WhyQueue {
	w := &WhyQueue{QueueStands: QueueStands{Queue: q.Name, Message: "Basalt has not seen it yet"}}
	s := q.Status
	if s == nil {
		return w
	}
	w.Message, w.WeightedShare = "", int(s.WeightedShare)
	w.Admitted, w.Waiting = int(s.AdmittedGangs), int(s.WaitingGangs)
	if c := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionReady); c != nil {
		w.Ready, w.Message = c.Reason, c.Message
	}
	of := map[string]*QueueResource{}
	for _, list := range []struct {
		amounts corev1.ResourceList
		field   func(*QueueResource) *string
	}{
		{s.Charged, func(r *QueueResource) *string { return &r.Charged }},
		{s.Yielding, func(r *QueueResource) *string { return &r.Yielding }},
		{s.Promised, func(r *QueueResource) *string { return &r.Promised }},
		{s.Wanted, func(r *QueueResource) *string { return &r.Wanted }},
		{s.FairShare, func(r *QueueResource) *string { return &r.FairShare }},
		{s.Limits.Guarantee, func(r *QueueResource) *string { return &r.Guarantee }},
		{s.Limits.Deserved, func(r *QueueResource) *string { return &r.Deserved }},
		{s.Limits.Capability, func(r *QueueResource) *string { return &r.Capability }},
	} {
		for name, amount := range list.amounts {
			what := string(name)
			if of[what] == nil {
				of[what] = &QueueResource{Resource: what}
			}
			text := amount.String()
			if v, err := api.FromQuantity(what, amount, true); err == nil {
				text = api.FormatAmount(what, v)
			}
			*list.field(of[what]) = text
		}
	}
	for _, what := range api.SortedKeys(of) {
		w.Amounts = append(w.Amounts, *of[what])
	}
	return w
}
