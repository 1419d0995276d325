package conformance

import (
	"fmt"
	"math/rand/v2"
)

// drawAPI draws operations on a few objects, in all their states and with preconditions of all kinds.
func drawAPI(rng *rand.Rand) func() string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	pod := func() string { return pick("a", "b", "c") }
	uid := func() string { return pick("", "", "", "", " uid=old", " uid=wrong") }
	const long = " grace=3600" // the server shortens it to what is left: seconds must not matter, or a slow machine does
	version := func() string { return pick("", "", " version=now", " version=now", " version=1", " version=none") }
	n := 0
	return func() string {
		if n++; n == 1 {
			return "mark start"
		}
		switch rng.IntN(26) {
		case 0, 1, 2, 3:
			return "create pod " + pod() + pick("", " labels=x:1", " labels=x:2,y:1") + pick(long, long, long+" gates=g",
				long+" finalizers=example.com/x", long+" node=n1", " grace=0")
		case 4, 5, 6:
			return "bind " + pod() + pick(" n1", " n2") + uid() + version() + pick("", " labels=x:2", " labels=z:1")
		case 7:
			return "annotate " + pod() + pick(" one", " two") + uid()
		case 8:
			return fmt.Sprintf("resolve %s v%d", pod(), n) + uid() + pick("", "", " version=1")
		case 9, 10:
			return "condition " + pod() + pick(
				" PodScheduled False",
				" DisruptionTarget True",
			) + pick(
				" One",
				" Two",
			) + uid() + version() + pick(
				"",
				" at=5",
			)
		case 11, 12:
			return "delete pod " + pod() + uid() + pick("", version()) + pick("", "", " grace=0", " grace=1800")
		case 13:
			return "change pod " + pod() + pick(
				" gates=",
				" labels=x:1",
				" labels=x:3",
				" phase=Succeeded",
				" phase=Running",
				" finalizers=",
			) + pick(
				"",
				"",
				" version=1",
			)
		case 14:
			return pick(
				"create group g min=2 queue=q",
				"delete group g",
				"change group g min=3",
				"change group g min=2 version=1",
				"delete group g uid=wrong",
			)
		case 15, 16, 17:
			return fmt.Sprintf(
				"status %s epoch=%d writer=%s seq=%d bound=%d%s",
				pick("group g", "queue q"),
				1+rng.IntN(2),
				pick("w", "v"),
				rng.IntN(3),
				rng.IntN(2),
				pick("", "", uid()),
			)
		case 18:
			return pick(
				"create queue q cpu=2",
				"create queue q cpu=2",
				"delete queue q",
				"change queue q cpu=3",
				"change queue q cpu=2",
			)
		case 19:
			return "finalizers q list=" + pick(
				"",
				"example.com/a",
				"example.com/a,example.com/b",
			) + pick(
				"",
				"",
				uid(),
				version(),
			)
		case 20:
			return "list pod" + pick(
				"",
				" labels=x:1",
				" labels=x",
				" fields=spec.nodeName:n1",
				" fields=status.phase:Pending",
				" fields=spec.nodeName:",
			)
		case 21, 22:
			return pick(
				"create claim c",
				"create volume v",
				"select c n1"+uid()+version(),
				"select c "+pick("n1", "n2"), // "none", before any, makes a version: managedFields change
				"keep v c"+uid()+version(),
				"keep v c",
			)
		}
		if rng.IntN(4) == 0 {
			return pick(
				"watch claim from=start",
				"watch volume from=start",
				"mark start",
				"watch group from=start",
				"watch queue from=start",
				"watch pod from=start",
				"watch pod from=start labels=x:1",
				"watch pod from=start labels=x:2",
				"watch pod from=start fields=spec.nodeName:n1",
				"watch pod from=start fields=spec.nodeName:",
			)
		}
		return "list " + pick("group", "queue", "claim", "volume")
	}
}
