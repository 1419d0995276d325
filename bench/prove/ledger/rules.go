package ledger

import "slices"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	GrantBeforeAnswers  Rule = iota // R1
	OpenIgnored                     // R2
	ReadBeforeAnswers               // R3
	ListBeforeRead                  // R4
	NoRead                          // R5
	OldTicket                       // R6
	TicketTimesOut                  // R7
	UnregisteredHome                // R8
	NewMemberNotAsked               // R9
	ShortcutAtTakeover              // R10
	AnswerWhileGaining              // R11
	HomeListsFirst                  // R12
	InheritedNotOpen                // R13
	OpenUntilTold                   // R14
	FreedInFlight                   // R15
	DoneOfAnySerial                 // R16
	TicketOfAnySerial               // R17
	OpenWithoutSerial               // R18
	PromisedSupports                // R19
	SaidSupports                    // R20
	PreparedRowSupports             // R21
	NoWatchInAnswer                 // R22
	CountOutlivesTicket
	ShortcutWithOrphans
	rules
)

var ruleNames = [rules]string{"grant-before-answers", "open-ignored", "read-before-answers", "list-before-read", "no-read", "old-ticket",
	"ticket-times-out", "unregistered-home", "new-member-not-asked", "shortcut-at-takeover", "answer-while-gaining", "home-lists-first",
	"inherited-not-open", "open-until-told", "freed-in-flight", "done-of-any-serial", "ticket-of-any-serial", "open-without-serial",
	"promised-supports", "said-supports", "prepared-row-supports", "no-watch-in-answer", "count-outlives-ticket", "shortcut-with-orphans"}

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
