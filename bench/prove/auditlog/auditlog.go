// Package auditlog reads the audit log of an API server (audit.k8s.io/v1, JSON lines) and tells what Basalt's processes
// wrote: how much, with what answers, and whether each Binding was allowed to be sent.
//
// It judges Bindings by the requests and not by what became of them: two Bindings of one pod to two nodes are a fault even
// when the server refused one, for the next time it may be the other. It decides nothing else.
package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// Users is how the names of Basalt's own users begin.
const Users = "system:serviceaccount:basalt-system:"

// slack is how much later than a Binding its intent may have been seen: the watch that shows it is behind.
const slack = 5 * time.Second

// Report is what a log says.
type Report struct {
	Lines        int
	Writes       int            // by Basalt's users, whatever the answer
	Requests     map[string]int // the same by "verb resource/subresource"
	Failed       map[string]int // those with an answer of 400 and above, by "verb resource/subresource code"
	Bindings     int
	Bound        int // Bindings that the server accepted
	StatusWrites int // of any /status
	// StatusConflicts are those of them that were answered with 409 or 422, but for pods: their status has other writers,
	// so Basalt names the version that it saw, and a pod that was bound or deleted meanwhile refuses it, as it should.
	StatusConflicts int
	// Faults of Bindings, each naming its pod.
	TwoNodes []string // Bindings to two nodes
	NoIntent []string // a Binding without an intent of that pod, version and node before
	NoUID    []string // a Binding that any pod of the name would have taken
}

// Intents remembers every intent that was ever seen, with the time.
type Intents struct{ seen map[intent]time.Time }

type intent struct{ uid, version, node string }

// NewIntents makes an empty memory.
func NewIntents() *Intents { return &Intents{seen: map[intent]time.Time{}} }

// Observe takes a revision of the control store. What cannot be read is left out: the auditor reports it.
func (in *Intents) Observe(now time.Time, e audit.StoreRevision) {
	for _, c := range e.Changes {
		if c.Deleted || !strings.HasPrefix(c.Key, "intents/") {
			continue
		}
		var r wire.IntentsRecord
		if proto.Unmarshal(c.Value, &r) != nil {
			continue
		}
		for _, row := range r.GetRows() {
			k := intent{row.GetPodUid(), row.GetPodResourceVersion(), row.GetNode()}
			if _, had := in.seen[k]; !had {
				in.seen[k] = now
			}
		}
	}
}

// event is what is read of a line.
type event struct {
	Stage      string
	RequestURI string
	Verb       string
	User       struct{ Username string }
	ObjectRef  *struct{ Resource, Subresource, Namespace, Name string }
	Response   *struct{ Code int } `json:"responseStatus"`
	Request    json.RawMessage     `json:"requestObject"`
	Received   time.Time           `json:"requestReceivedTimestamp"`
}

type binding struct {
	Metadata struct{ UID, ResourceVersion string }
	Target   struct{ Name string }
}

// Read reads a log to its end. A last line that is cut short is left out: the server may still be writing. Without intents
// no Binding is judged by them.
func Read(r io.Reader, intents *Intents) (*Report, error) {
	out := &Report{Requests: map[string]int{}, Failed: map[string]int{}}
	nodes := map[string]string{} // pod -> the node of its first Binding
	twice := map[string]bool{}
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("read audit log: %w", err)
		}
		out.Lines++
		if !bytes.Contains(line, []byte(Users)) { // most lines are the load's
			continue
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return out, fmt.Errorf("read audit log: line %d: %w", out.Lines, err)
		}
		if e.Stage == "RequestReceived" || !strings.HasPrefix(e.User.Username, Users) || e.ObjectRef == nil {
			continue
		}
		switch e.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
		default:
			continue
		}
		code := 0
		if e.Response != nil {
			code = e.Response.Code
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		out.Writes++
		out.Requests[what]++
		if code >= 400 {
			out.Failed[fmt.Sprintf("%s %d", what, code)]++
		}
		switch e.ObjectRef.Subresource {
		case "status":
			out.StatusWrites++
			if (code == 409 || code == 422) && e.ObjectRef.Resource != "pods" {
				out.StatusConflicts++
			}
		case "binding":
			out.Bindings++
			if code >= 200 && code < 300 {
				out.Bound++
			}
			var b binding
			if err := json.Unmarshal(e.Request, &b); err != nil {
				return out, fmt.Errorf("read audit log: line %d: the body of a Binding: %w", out.Lines, err)
			}
			name := e.ObjectRef.Namespace + "/" + e.ObjectRef.Name
			pod := b.Metadata.UID
			if pod == "" {
				out.NoUID = append(out.NoUID, name)
				pod = name
			}
			name += " (" + pod + ")"
			switch first, had := nodes[pod]; {
			case !had:
				nodes[pod] = b.Target.Name
			case first != b.Target.Name && !twice[pod]:
				twice[pod] = true
				out.TwoNodes = append(out.TwoNodes, fmt.Sprintf("%s: %s and %s", name, first, b.Target.Name))
			}
			if intents != nil {
				at, had := intents.seen[intent{b.Metadata.UID, b.Metadata.ResourceVersion, b.Target.Name}]
				switch {
				case !had:
					out.NoIntent = append(out.NoIntent, fmt.Sprintf("%s to %s at version %s: never", name, b.Target.Name, b.Metadata.ResourceVersion))
				case at.After(e.Received.Add(slack)):
					out.NoIntent = append(out.NoIntent, fmt.Sprintf("%s to %s: seen %s after the Binding", name, b.Target.Name, at.Sub(e.Received)))
				}
			}
		}
	}
}

// Requests counts what users of a log asked for from a time on, by "verb resource/subresource", whatever the answer; failed
// has those with an answer of 400 and above, by "verb resource/subresource code". A log keeps what its policy says: here every write and no
// read.
func Requests(r io.Reader, from time.Time, of func(user string) bool) (requests, failed map[string]int, err error) {
	requests, failed = map[string]int{}, map[string]int{}
	in := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, failed, nil
		}
		if err != nil {
			return requests, failed, fmt.Errorf("read audit log: %w", err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return requests, failed, fmt.Errorf("read audit log: line %d: %w", n, err)
		}
		if e.Stage == "RequestReceived" || e.ObjectRef == nil || !of(e.User.Username) || e.Received.Before(from) {
			continue
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		requests[what]++
		if e.Response != nil && e.Response.Code >= 400 {
			failed[fmt.Sprintf("%s %d", what, e.Response.Code)]++
		}
	}
}
