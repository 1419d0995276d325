package progress

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api/v1beta1"
)

// Facts are what is so of a pod that waits, and of the pods of its group that wait with it.
type Facts struct {
	Nodes  int    // of the cluster
	Group  bool   // the group that it names exists,
	Least  int    // with this minimum,
	Floor  bool   // and asks for more than its pods do
	Admits bool   // its queue takes it: it exists, is open, and so are all above it
	Quota  bool   // its queue and all above it surely have room for all that wait
	Fits   bool   // they are within every limit, if nothing else were charged
	Why    string // the reason that `basalt why` says, "" if nobody was asked
}

// Said is what a pod says of why it waits.
func Said(p *v1.Pod) v1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c
		}
	}
	return v1.PodCondition{}
}

var (
	ofNodes = regexp.MustCompile(`(\d+)/(\d+) nodes are available(?:( to such a pod by itself)|:|$)`)
	ofPods  = regexp.MustCompile(`^(\d+) of the (\d+) pods that start together can be scheduled`)
)

// Untrue says what is not so of what a pod says, "" for nothing. What it cannot tell for sure passes.
func (f Facts) Untrue(said v1.PodCondition) string {
	switch {
	case said.Reason == "" && f.Why == v1beta1.ReasonWaiting: // others leave for it: an event said so
		return ""
	case said.Reason == "":
		return "it should say why it waits"
	}
	m := ofNodes.FindStringSubmatch(said.Message)
	if m != nil && (m[1] != "0" && m[3] == "" || m[2] != strconv.Itoa(f.Nodes)) {
		return fmt.Sprintf("there are %d nodes", f.Nodes)
	}
	switch said.Reason {
	case v1beta1.ReasonQuotaExceeded:
		later := strings.Contains(said.Message, "once the gangs that wait for nodes have started") // others, too
		if strings.Contains(said.Message, "has insufficient") && f.Quota && !f.Floor && !later {
			return "its queue and all above it have room for all that wait with it"
		}
	case v1beta1.ReasonNotEnoughPods:
		m := ofPods.FindStringSubmatch(said.Message)
		if m != nil && f.Group && m[2] != strconv.Itoa(f.Least) {
			return fmt.Sprintf("its minimum is %d", f.Least)
		}
		if m != nil && m[1] == m[2] {
			return "these are enough"
		}
	case v1beta1.ReasonPodGroupNotFound:
		if f.Group {
			return "it exists"
		}
	case v1beta1.ReasonQueueNotAllowed:
		if f.Admits {
			return "its queue takes it"
		}
	case v1beta1.ReasonNeverFits:
		if !f.Floor && f.Fits {
			return "no limit of its queue or above is smaller"
		}
	}
	if f.Why != "" && f.Why != said.Reason {
		return "basalt why says " + f.Why
	}
	return ""
}
