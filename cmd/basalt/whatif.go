package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/visibility"
)

// whatIf is what basalt why is asked that is not so.
type whatIf struct {
	changes []string
	gang    string
}

func (w *whatIf) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&w.changes, "what-if", nil, "QUEUE:FIELD=VALUE: say what this change of a Queue's spec would do, and change nothing; may be repeated")
	f.StringVar(&w.gang, "gang", "", "queue=QUEUE,RESOURCE=AMOUNT,..: say how a gang of such pods would stand, "+
		"which does not exist; pods=N, minCount=N, priority=N or a PriorityClass, preemptible=false, "+
		"preemptionPolicy=Never and maxRuntime=45m, if need be")
}

func (w *whatIf) asked() bool { return len(w.changes) > 0 || w.gang != "" }

// check says what is wrong with a question before anybody is asked.
func (w *whatIf) check(args []string) error {
	if w.gang != "" && len(args) > 0 {
		return fmt.Errorf("--gang is about a gang that does not exist: leave out %s", args[0])
	}
	for _, c := range w.changes {
		if _, err := visibility.ParseChange(c); err != nil {
			return fmt.Errorf("--what-if: %w", err)
		}
	}
	return nil
}

// query makes the question.
func (w *whatIf) query(ctx context.Context, config *rest.Config, namespace string, args []string) (url.Values, error) {
	query := url.Values{"change": w.changes}
	if w.gang != "" {
		planned, err := namedPriority(w.gang, func(name string) (int32, bool, error) { return priorityClass(ctx, config, name) })
		if err == nil {
			_, err = visibility.ParsePlanned(planned, namespace)
		}
		if err != nil {
			return nil, fmt.Errorf("--gang: %w", err)
		}
		query.Set("planned", planned)
		query.Set("namespace", namespace)
	}
	if len(args) == 0 {
		return query, nil
	}
	name := args[0]
	if queue, is := strings.CutPrefix(name, "queue/"); is {
		query.Set("queue", queue)
		return query, nil
	}
	if !strings.Contains(name, "/") {
		name = namespace + "/" + name
	}
	query.Set("gang", name)
	return query, nil
}

// namedPriority puts the value of a PriorityClass in the place of its name.
func namedPriority(gang string, class func(string) (value int32, never bool, err error)) (string, error) {
	parts := strings.Split(gang, ",")
	for i, part := range parts {
		name, is := strings.CutPrefix(part, "priority=")
		if _, err := strconv.Atoi(name); !is || err == nil {
			continue
		}
		value, never, err := class(name)
		if err != nil {
			return "", err
		}
		parts[i] = fmt.Sprint("priority=", value)
		if never && !strings.Contains(gang, "preemptionPolicy=") {
			parts[i] += ",preemptionPolicy=Never"
		}
	}
	return strings.Join(parts, ","), nil
}

func priorityClass(ctx context.Context, config *rest.Config, name string) (value int32, never bool, err error) {
	if name == "" {
		return 0, false, errors.New("priority: it is a number, or the name of a PriorityClass")
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, false, err
	}
	class, err := clients.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, false, fmt.Errorf("read PriorityClass %q, in whose place a number may be given: %w", name, err)
	}
	return class.Value, class.PreemptionPolicy != nil && *class.PreemptionPolicy == corev1.PreemptNever, nil
}
