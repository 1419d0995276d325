package ledger

import "slices"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	GrantBeforeAnswers Rule = iota
	OpenIgnored
	ReadBeforeAnswers
	ListBeforeRead
	NoRead
	OldTicket
	TicketTimesOut
	UnregisteredHome
	NewMemberNotAsked
	ShortcutAtTakeover
	AnswerWhileGaining
	HomeListsFirst
	InheritedNotOpen
	OpenUntilTold
	FreedInFlight
	DoneOfAnySerial
	TicketOfAnySerial
	OpenWithoutSerial
	PromisedSupports
	SaidSupports
	PreparedRowSupports
	NoWatchInAnswer
	CountOutlivesTicket
	ShortcutWithOrphans
	DecidedSupports
	TicketOfUnknownGroup
	rules
)

var ruleNames = [rules]string{"grant-before-answers", "open-ignored", "read-before-answers", "list-before-read", "no-read", "old-ticket",
	"ticket-times-out", "unregistered-home", "new-member-not-asked", "shortcut-at-takeover", "answer-while-gaining", "home-lists-first",
	"inherited-not-open", "open-until-told", "freed-in-flight", "done-of-any-serial", "ticket-of-any-serial", "open-without-serial",
	"promised-supports", "said-supports", "prepared-row-supports", "no-watch-in-answer", "count-outlives-ticket", "shortcut-with-orphans", "decided-supports", "ticket-of-unknown-group"}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule {
	var all []Rule
	for r := range rules {
		all = append(all, r)
	}
	return all
}

// Named returns the rule of a name.
func Named(name string) (Rule, bool) {
	i := slices.Index(ruleNames[:], name)
	return Rule(max(i, 0)), i >= 0
}

type weakened uint32

func weak(rs []Rule) (w weakened) {
	for _, r := range rs {
		w |= 1 << r
	}
	return w
}

func (w weakened) has(r Rule) bool { return w&(1<<r) != 0 }

// Weakened is a rule that is not kept, where that is found soonest.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	in := func(name string, next int, late bool, changes uint8) Config {
		p, _ := PatternNamed(name)
		p.Next, p.Late = p.Next[next:next+1], late
		return Config{Pattern: p, Changes: changes, Attempts: 1, OnlyC2: true, Limit: 1_000_000}
	}
	twice := func(cfg Config) Config { cfg.Attempts = 2; return cfg }
	edited := func(cfg Config) Config { cfg.Edits = 1; return cfg }
	deleted := func(cfg Config) Config { cfg.Deletes = 1; return cfg }
	any := func(cfg Config) Config { cfg.OnlyC2 = false; return cfg }
	all := []Weakened{
		{GrantBeforeAnswers, in("plain", 0, true, 0)},
		{OpenIgnored, in("home", 0, false, 0)},
		{ReadBeforeAnswers, in("home", 0, false, 0)},
		{ListBeforeRead, in("home", 0, false, 0)},
		{NoRead, in("home", 0, false, 0)},
		{OldTicket, in("home", 1, false, 1)},
		{TicketTimesOut, in("plain", 0, false, 0)},
		{UnregisteredHome, in("plain", 4, false, 1)},
		{NewMemberNotAsked, in("home", 2, true, 1)},
		{ShortcutAtTakeover, in("orphan", 0, false, 1)},
		{AnswerWhileGaining, in("home", 1, true, 1)},
		{HomeListsFirst, in("home", 1, true, 1)},
		{InheritedNotOpen, in("home", 1, true, 1)},
		{OpenUntilTold, in("plain", 0, true, 0)},
		{FreedInFlight, in("plain", 0, false, 0)},
		{DoneOfAnySerial, twice(in("plain", 0, false, 0))},
		{TicketOfAnySerial, twice(in("plain", 0, false, 0))},
		{OpenWithoutSerial, twice(in("home", 0, false, 0))},
		{PromisedSupports, in("support", 0, false, 0)},
		{SaidSupports, in("support", 0, false, 0)},
		{PreparedRowSupports, in("support", 0, false, 0)},
		{NoWatchInAnswer, in("home", 0, true, 0)},
		{CountOutlivesTicket, any(in("plain", 3, false, 1))},
		{ShortcutWithOrphans, in("orphan", 0, true, 1)},
		{DecidedSupports, edited(in("support", 0, false, 0))},
		{TicketOfUnknownGroup, any(deleted(in("plain", 4, false, 1)))},
	}
	for i := range all {
		all[i].In.Weak = []Rule{all[i].Rule}
	}
	return all
}
