package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// codes returns the reasons that package v1beta1 has for conditions of PodGroups: all but those of Queues, which come before
// ReasonReserved.
func codes(t *testing.T) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1beta1/words.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ofGroups := false
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Names) != 1 || len(spec.Values) != 1 || len(spec.Names[0].Name) < 7 || spec.Names[0].Name[:6] != "Reason" {
			return true
		}
		ofGroups = ofGroups || spec.Names[0].Name == "ReasonReserved"
		if literal, is := spec.Values[0].(*ast.BasicLit); is && ofGroups {
			code, _ := strconv.Unquote(literal.Value)
			out = append(out, code)
		}
		return true
	})
	if len(out) < 16 {
		t.Fatalf("only %d reasons were found", len(out))
	}
	return out
}

// Every reason that a PodGroup can show is in the table. What pods show are reasons themselves, and autoscalers, which act on
// Unschedulable, see it for no reason but a lack of nodes.
func TestEffects(t *testing.T) {
	for _, code := range codes(t) {
		e, listed := effects[code]
		if !listed {
			t.Errorf("%s is not in the table", code)
		}
		if _, is := effects[e.pod]; e.pod != "" && !is {
			t.Errorf("%s: pods show %s, which is no reason", code, e.pod)
		}
		if (e.pod == v1beta1.ReasonUnschedulable) != (code == v1beta1.ReasonUnschedulable || code == v1beta1.ReasonSupplyExceeded || code == v1beta1.ReasonNoNodeFits) {
			t.Errorf("%s: pods show %q", code, e.pod)
		}
		if e.atOnce && e.pod == "" {
			t.Errorf("%s is shown at once, and nowhere", code)
		}
	}
	if len(effects) != len(codes(t)) {
		t.Errorf("the table has %d reasons of %d", len(effects), len(codes(t)))
	}
}

// Each denial has a code that ends when the reservation is granted, but for those that no grant can follow.
func TestDenials(t *testing.T) {
	for n := range wire.DenyReason_name {
		r := Denied(&wire.Denied{Reason: wire.DenyReason(n), Queue: "q", Resource: "cpu", Short: 1500})
		words := `queue "q" is short of cpu=1500m`
		if wire.DenyReason(n) == wire.DenyReason_DENY_SUPPLY {
			words = "the nodes are short of cpu=1500m"
		}
		if r.Message != words {
			t.Errorf("%s: %s", wire.DenyReason(n), r.Message)
		}
		if never := r.Is(v1beta1.ReasonNeverFits); r.OfCharge() == never {
			t.Errorf("%s: %s", wire.DenyReason(n), r.Code)
		}
		if _, listed := denials[wire.DenyReason(n)]; listed == r.Is(v1beta1.ReasonQuotaExceeded) {
			t.Errorf("%s: %s, listed %t", wire.DenyReason(n), r.Code, listed)
		}
	}
	if r := Denied(&wire.Denied{Reason: wire.DenyReason_DENY_QUEUE_CLOSED, Message: "words"}); r != (Reason{v1beta1.ReasonQueueClosed, "words"}) {
		t.Errorf("%+v", r)
	}
}

// A condition that is true is not urgent, nor is what the table does not have.
func TestUrgent(t *testing.T) {
	closed := Denied(&wire.Denied{Reason: wire.DenyReason_DENY_QUEUE_CLOSED})
	for _, test := range []struct {
		Verdict
		want bool
	}{
		{Verdict{false, closed}, true}, {Verdict{true, closed}, false}, {Verdict{}, false}, {Verdict{Reason: Requested()}, false},
		{Verdict{Reason: NotEnoughPods(1, 2, Kept{})}, false}, {Verdict{Reason: Unschedulable(1, 2, "")}, false},
		{Verdict{Reason: PodTooLarge(&api.Pod{}, "cpu", 2, 1)}, true}, {Verdict{true, Reserved("q")}, false},
	} {
		if test.Urgent() != test.want {
			t.Errorf("%+v: urgent %t", test.Verdict, !test.want)
		}
	}
}

// The page for users has a section for every reason for which something waits, and for no other.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../../deploy/docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[m[1]] = true
	}
	for code, e := range effects {
		if waits := e.next != ""; sections[code] != waits {
			t.Errorf("reason %s: a section in deploy/docs/troubleshooting.md: %t; something waits for it: %t", code, sections[code], waits)
		}
		delete(sections, code)
	}
	for code := range sections {
		t.Errorf("deploy/docs/troubleshooting.md has a section %s, which is no reason", code)
	}
}
