package visibility

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// What users are told of the queues that their namespace may use. Whoever may create PodGroups in a namespace may
// find out by trying which queues admit it, and waits in them: so the amounts of these queues and of their ancestors
// are no secret. Gangs of others are counted.

// UsableQueues are the queues that a namespace may use, and those above them. It is the answer in JSON; fields may
// be added.
type UsableQueues struct {
	Namespace  string        `json:"namespace"`
	Queues     []QueueStands `json:"queues"`
	MoreQueues int           `json:"moreQueues,omitempty"`
}

// QueueStands is what a queue has.
type QueueStands struct {
	Queue    string          `json:"queue"`
	Ready    string          `json:"ready"` // the reason of its condition
	Message  string          `json:"message,omitempty"`
	Admitted int             `json:"admitted"` // gangs
	Waiting  int             `json:"waiting"`
	Amounts  []QueueResource `json:"amounts,omitempty"`
}

// usable says which queues a namespace may use, to whoever may create PodGroups there.
func (s *server) usable(ctx context.Context, r *http.Request) (any, error) {
	namespace, queue := r.PathValue("namespace"), r.URL.Query().Get("queue")
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return nil, problem{http.StatusBadRequest, "the path names no namespace: it is /v1/namespaces/NAMESPACE/queues"}
	}
	if queue != "" {
		if err := api.ValidatePath(queue); err != nil {
			return nil, problem{http.StatusBadRequest, err.Error()}
		}
	}
	who, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := s.mayUse(ctx, who, namespace); err != nil {
		return nil, err
	}
	if !s.standings.Wait(ctx, who.tenant()) {
		return nil, tooMany
	}
	said, err := s.Queues(ctx, &wire.QueuesRequest{Namespace: namespace, Queue: queue})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, problem{http.StatusNotImplemented,
			"the coordinator that leads is of an earlier version, and does not say which queues a namespace may use"}
	case err != nil:
		return nil, cannot("ask the coordinator", err)
	case queue != "" && len(said.GetQueues()) == 0:
		return nil, notAdmitted(queue, namespace)
	}
	out := &UsableQueues{Namespace: namespace, MoreQueues: int(said.GetQueuesTotal()) - len(said.GetQueues())}
	for _, u := range said.GetQueues() {
		out.Queues = append(out.Queues, standsFrom(u))
	}
	return out, nil
}

// mayUse returns an error for a user who may not create PodGroups in a namespace.
func (s *server) mayUse(ctx context.Context, who *user, namespace string) error {
	return s.Reviews.authorise(ctx, who, authorization.ResourceAttributes{Verb: "create", Group: v1beta1.GroupName,
		Resource: "podgroups", Namespace: namespace}, false,
		fmt.Sprintf("user %q may not create PodGroups in namespace %q", who.Username, namespace))
}

// notAdmitted is the same whether or not there is such a queue.
func notAdmitted(queue, namespace string) error {
	return problem{http.StatusForbidden,
		fmt.Sprintf("there is no queue %q that admits namespace %q: basalt queue list -n %s lists those that do",
			queue, namespace, namespace)}
}

// standingFor asks the coordinator about a queue for a user who may get it, or, in a namespace, may use it.
func (s *server) standingFor(ctx context.Context, who *user, queue, namespace string) (*wire.StandingReply, error) {
	err := s.Reviews.authorise(ctx, who, authorization.ResourceAttributes{Verb: "get", Group: v1beta1.GroupName,
		Resource: "queues", Name: queue}, false, fmt.Sprintf("user %q may not get the Queue %q", who.Username, queue))
	mayGet := err == nil
	if err != nil && (namespace == "" || code(err) != http.StatusForbidden) {
		return nil, err
	}
	if !mayGet {
		if unable := s.mayUse(ctx, who, namespace); code(unable) == http.StatusForbidden {
			return nil, problem{http.StatusForbidden, fmt.Sprintf("%s, nor create PodGroups in namespace %q", err, namespace)}
		} else if unable != nil {
			return nil, unable
		}
	}
	if !s.standings.Wait(ctx, who.tenant()) {
		return nil, tooMany
	}
	said, err := s.Standing(ctx, &wire.StandingRequest{Queue: queue, Namespace: namespace})
	switch {
	case err != nil:
		return nil, cannot("ask the coordinator", err)
	case !mayGet && !said.GetAdmits():
		return nil, notAdmitted(queue, namespace)
	case !said.GetKnown():
		return nil, problem{http.StatusNotFound, fmt.Sprintf("there is no queue %q", queue)}
	}
	return said, nil
}

// code returns that of an error that is an answer, 0 for others.
func code(err error) int {
	if p, is := err.(problem); is {
		return p.code
	}
	return 0
}

// Text says all of it, for people.
func (u *UsableQueues) Text() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tCHARGED\tADMITTED\tWAITING\tREADY")
	for _, q := range u.Queues {
		fmt.Fprintf(table, "%s%s\t%s\t%d\t%d\t%s\n", strings.Repeat("  ", strings.Count(q.Queue, ".")), q.Queue,
			charges(q.Amounts), q.Admitted, q.Waiting, q.Ready)
	}
	_ = table.Flush()
	if u.MoreQueues > 0 {
		fmt.Fprintf(&b, "and %d more\n", u.MoreQueues)
	}
	return b.String()
}
