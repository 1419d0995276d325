package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
)

// queueCommand shows and changes Queues, with the rights of whoever calls it.
func queueCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "List queues as a tree; close a queue, or open it again"}
	cmd.AddCommand(queueListCommand(), queueSwitchCommand("close", "Stop admitting gangs in a queue and its descendants; what is admitted goes on", true),
		queueSwitchCommand("open", "Admit gangs in a queue again", false))
	return cmd
}

// queues returns a client for Queues.
func (u *user) queues() (*kube.Clients, error) {
	config, _, err := u.config()
	if err != nil {
		return nil, err
	}
	return kube.ConnectConfig(config, "basalt")
}

func queueListCommand() *cobra.Command {
	var u user
	var e endpoint
	cmd := &cobra.Command{Use: "list [QUEUE]", Short: "List the queues, or one and its descendants, as a tree",
		Args: cobra.MaximumNArgs(1),
		Long: `List the queues, or one and its descendants, as a tree.

With -n, only the queues that admit that namespace, for whoever may create PodGroups there. So it is without -n,
in the namespace of the context, for users who may not list Queues.`}
	u.register(cmd, "json, yaml, or wide")
	e.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch u.output {
		case "", "wide", "json", "yaml":
		default:
			return fmt.Errorf("--output %q: json, yaml or wide", u.output)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
		defer cancel()
		if cmd.Flags().Changed("namespace") {
			return u.listUsable(ctx, cmd.OutOrStdout(), &e, args)
		}
		clients, err := u.queues()
		if err != nil {
			return err
		}
		var list v1beta1.QueueList
		err = clients.Basalt.Get().Resource("queues").Do(ctx).Into(&list)
		switch {
		case apierrors.IsForbidden(err):
			return u.listUsable(ctx, cmd.OutOrStdout(), &e, args)
		case err != nil:
			return fmt.Errorf("list queues: %w", err)
		}
		if len(args) == 1 {
			list.Items = slices.DeleteFunc(list.Items, func(q v1beta1.Queue) bool { return !api.Under(q.Name, args[0]) })
			if len(list.Items) == 0 {
				return fmt.Errorf("there is no queue %q", args[0])
			}
		}
		slices.SortFunc(list.Items, func(a, b v1beta1.Queue) int {
			if root := (a.Name == api.RootQueue) != (b.Name == api.RootQueue); root {
				return map[bool]int{true: -1, false: 1}[a.Name == api.RootQueue]
			}
			return slices.Compare(strings.Split(a.Name, "."), strings.Split(b.Name, "."))
		})
		return show(cmd.OutOrStdout(), u.output, &list, func(w io.Writer) { printTree(w, list.Items, u.output == "wide") })
	}
	return cmd
}

// listUsable lists the queues that admit a namespace, as Basalt says.
func (u *user) listUsable(ctx context.Context, w io.Writer, e *endpoint, args []string) error {
	config, namespace, err := u.config()
	if err != nil {
		return err
	}
	path := "/namespaces/" + url.PathEscape(namespace) + "/queues"
	if len(args) == 1 {
		path += "?queue=" + url.QueryEscape(args[0])
	}
	var answer visibility.UsableQueues
	if err := e.call(ctx, config, http.MethodGet, path, &answer); err != nil {
		return fmt.Errorf("list the queues that admit namespace %s: %w", namespace, err)
	}
	return show(w, u.output, &answer, func(w io.Writer) { fmt.Fprint(w, answer.Text()) })
}

// printTree prints queues in the order of their paths. Without wide it leaves out the message that a queue usually
// has, and what is charged of a resource has a line of its own where all of them would make a long one.
func printTree(out io.Writer, queues []v1beta1.Queue, wide bool) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "QUEUE\tCHARGED\tADMITTED\tWAITING\tREADY\tMESSAGE")
	for i := range queues {
		q := &queues[i]
		name := strings.Repeat("  ", strings.Count(q.Name, ".")) + q.Name
		s := q.Status
		if s == nil {
			fmt.Fprintf(w, "%s\t\t\t\t\t%s\n", name, joined("; ", "not seen by Basalt yet", policyOf(&q.Spec)))
			continue
		}
		charged := []string{""}
		if all := chargedOf(q); wide || len(strings.Join(all, ", ")) <= chargedColumns {
			charged[0] = strings.Join(all, ", ")
		} else {
			charged = all
		}
		reason, message := "", ""
		if c := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionReady); c != nil {
			if reason = c.Reason; wide || c.Message != v1beta1.MessageReady {
				message = c.Message
			}
		}
		fmt.Fprintf(
			w,
			"%s\t%s\t%d\t%d\t%s\t%s\n",
			name,
			charged[0],
			s.AdmittedGangs,
			s.WaitingGangs,
			reason,
			joined("; ", message, policyOf(&q.Spec)),
		)
		for _, more := range charged[1:] {
			fmt.Fprintf(w, "\t%s\t\t\t\t\n", more)
		}
	}
	_ = w.Flush()
}

// plain writes 1000 cores as people do, and not as 1k.
func plain(q resource.Quantity) string {
	if n, whole := q.AsInt64(); whole && q.Format == resource.DecimalSI {
		return strconv.FormatInt(n, 10)
	}
	return q.String()
}

// chargedColumns is how wide what a queue is charged may be in one line.
const chargedColumns = 44

// chargedOf lists what a queue is charged: each resource, its limit, and what the queue deserves.
func chargedOf(q *v1beta1.Queue) (out []string) {
	s := q.Status
	what := map[v1.ResourceName]bool{}
	for _, list := range []v1.ResourceList{s.Charged, q.Spec.Capability, s.Limits.Deserved} {
		for name := range list {
			what[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(what)) {
		amount := s.Charged[name]
		text := string(name) + " " + plain(amount)
		if name == api.ResourceGangs {
			text = "gangs " + plain(amount)
		}
		if limit, limited := q.Spec.Capability[name]; limited {
			text += "/" + plain(limit)
		}
		if deserved, guarantee := s.Limits.Deserved[name], s.Limits.Guarantee[name]; deserved.String() != guarantee.String() {
			text += " (deserves " + plain(deserved) + ")"
		}
		out = append(out, text)
	}
	return out
}

// joined joins the texts that are not empty.
func joined(with string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), with)
}

// policyOf returns what a Queue itself says about who is evicted for whom, "" for nothing.
func policyOf(s *v1beta1.QueueSpec) string {
	var out []string
	if s.Reclaimable != nil && !*s.Reclaimable {
		out = append(out, "not reclaimable")
	}
	if s.ReclaimPolicy != "" {
		out = append(out, "reclaims "+string(s.ReclaimPolicy))
	}
	if s.PreemptionPolicy != "" {
		out = append(out, "preempts "+string(s.PreemptionPolicy))
	}
	for _, d := range []struct {
		of   string
		said *metav1.Duration
	}{{"min before reclaim", s.ReclaimMinRuntime}, {"min before preemption", s.PreemptMinRuntime},
		{"delay", s.PreemptionDelay}, {"repair", s.RepairFor}, {"stale after", s.StaleAfter},
		{"longest run", s.MaxRuntime}, {"default run", s.DefaultRuntime}} {
		if d.said != nil {
			out = append(out, d.of+" "+d.said.Duration.String())
		}
	}
	if n := len(s.UserLimits); n > userLimitsShown {
		out = append(out, fmt.Sprintf("%d limits of users", n))
	} else {
		for _, l := range s.UserLimits {
			out = append(out, limitOf(l))
		}
	}
	return strings.Join(out, ", ")
}

// userLimitsShown is how many limits of users are in a line; of more than that it says how many there are.
const userLimitsShown = 3

// limitOf says whom an entry of spec.userLimits limits, and to what.
func limitOf(l v1beta1.UserLimit) string {
	whose := "each user at most"
	for _, list := range []struct {
		one, all string
		names    []string
	}{{"user", "users", l.Users}, {"group", "groups", l.Groups}} {
		switch n := len(list.names); {
		case n == 1:
			whose = list.one + " " + api.Shorten(list.names[0], 40) + " at most"
		case n > 1:
			whose = fmt.Sprintf("%d %s at most", n, list.all)
		}
	}
	var most []string
	for _, name := range slices.Sorted(maps.Keys(l.Capability)) {
		text := string(name)
		if name == api.ResourceGangs {
			text = "gangs"
		}
		most = append(most, plain(l.Capability[name])+" "+text)
	}
	return whose + " " + strings.Join(most, " and ")
}

func queueSwitchCommand(verb, short string, closed bool) *cobra.Command {
	var u user
	var timeout time.Duration
	cmd := &cobra.Command{Use: verb + " QUEUE", Short: short, Args: cobra.ExactArgs(1),
		Long: short + `.

The spec is changed at once, and the command returns when the coordinator goes by it and the status says so.`}
	u.register(cmd, "unused")
	_ = cmd.Flags().MarkHidden("output")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the status; 0 means do not wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout+30*time.Second)
		defer cancel()
		clients, err := u.queues()
		if err != nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"spec":{"closed":%t}}`, closed)
		var q v1beta1.Queue
		err = clients.Basalt.Patch(types.MergePatchType).Resource("queues").Name(args[0]).Body(patch).Do(ctx).Into(&q)
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no queue %q", args[0])
		case err != nil:
			return fmt.Errorf("%s queue %q: %w", verb, args[0], err)
		}
		said := fmt.Sprintf(
			"queue %q is %s",
			q.Name,
			map[bool]string{true: "closed: gangs in it and below it wait", false: "open"}[closed],
		)
		if timeout > 0 {
			get := func(ctx context.Context) (*v1beta1.Queue, error) {
				var now v1beta1.Queue
				err := clients.Basalt.Get().Resource("queues").Name(q.Name).Do(ctx).Into(&now)
				return &now, err
			}
			more, err := awaitSwitch(ctx, &q, timeout, get)
			if err != nil {
				return fmt.Errorf("%s queue %q: %w", verb, q.Name, err)
			}
			said += more
		}
		fmt.Fprintln(cmd.OutOrStdout(), said)
		return nil
	}
	return cmd
}

// switchEvery is how often a Queue is read that was closed or opened. Its status is written within 2 seconds.
const switchEvery = 250 * time.Millisecond

// awaitSwitch waits until the status of a Queue is about the spec that was written, and returns what has to be said
// beside: that it admits nothing although it is open, or that nobody could see whether it does.
func awaitSwitch(
	ctx context.Context,
	written *v1beta1.Queue,
	timeout time.Duration,
	get func(context.Context) (*v1beta1.Queue, error),
) (string, error) {
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		timeout,
		fmt.Errorf("its spec says so, but after %s its status does not yet; "+
			"it is done as soon as a coordinator reads it: see basalt status", timeout),
	)
	defer cancel()
	for {
		now, err := get(ctx)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case apierrors.IsForbidden(err):
			return "; you may not get it, so when its status says so is not awaited", nil
		case apierrors.IsNotFound(err) || err == nil && now.UID != written.UID:
			return "", errors.New("somebody has deleted it")
		case err == nil && now.Spec.Closed != written.Spec.Closed:
			return "", errors.New("somebody else has changed it again")
		case err == nil && now.Status != nil && now.Status.ObservedGeneration >= written.Generation:
			c := meta.FindStatusCondition(now.Status.Conditions, v1beta1.ConditionReady)
			if c != nil && c.Status != metav1.ConditionTrue && !written.Spec.Closed {
				return fmt.Sprintf("; it is not ready: %s: %s", c.Reason, c.Message), nil
			}
			return "", nil
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(switchEvery):
		}
	}
}
