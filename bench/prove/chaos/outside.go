package chaos

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
)

// Faults in which nothing dies and no path breaks: a server refuses, forgets or is late, a clock steps, a process hardly gets
// any CPU, another version of Basalt runs beside this one.

// refusal is what an admission policy forbids to Basalt's processes.
type refusal struct {
	what       string
	groups     []string
	resources  []string
	operations []admissionv1.OperationType
	allows     string // CEL
}

func (a *attack) refuseBindings() {
	r := refusal{what: "Bindings", groups: []string{""}, resources: []string{"pods/binding"}, operations: []admissionv1.OperationType{admissionv1.Create}, allows: "false"}
	if node := a.rand.IntN(2 * nodeCount); node < nodeCount {
		name := fmt.Sprintf("node-%02d", node)
		r.what, r.allows = "Bindings to "+name, fmt.Sprintf("object.target.name != %q", name)
	}
	a.refuse(r)
}

// refusePods forbids what follows a Binding without an answer, and evictions.
func (a *attack) refusePods() {
	a.refuse(refusal{what: "changes of pods", groups: []string{""}, resources: []string{"pods", "pods/status", "pods/eviction"}, allows: "false",
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}})
}

func (a *attack) refuseStatuses() {
	a.refuse(refusal{what: "changes of Queues and PodGroups", groups: []string{"*"}, allows: "false", operations: []admissionv1.OperationType{admissionv1.Update},
		resources: []string{"queues", "queues/status", "podgroups", "podgroups/status"}})
}

// refuse makes an admission policy for a while. The API server needs about a second to learn of it, and of its end.
func (a *attack) refuse(r refusal) {
	d := between(a.rand, 3*time.Second, 12*time.Second)
	name := fmt.Sprintf("chaos-%d", a.serial)
	a.serial++
	ok, done := a.once("refuse " + r.resources[0])
	if !ok {
		return
	}
	a.about = fmt.Sprintf("%s for %s", r.what, d.Round(time.Millisecond))
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: r.operations, Rule: admissionv1.Rule{APIGroups: r.groups, APIVersions: []string{"*"}, Resources: r.resources}}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "basalt", Expression: fmt.Sprintf("request.userInfo.username in [%q, %q]", local.Shard, local.Coordinator)}},
		Validations:     []admissionv1.Validation{{Expression: r.allows, Message: "chaos forbids it"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	admission := a.kube.Core.AdmissionregistrationV1()
	a.lasting(0, func() {
		defer done()
		a.patiently("create policy "+name, func(ctx context.Context) error {
			_, err := admission.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			_, err = admission.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
		wait.For(a.loading, d)
		a.patiently("delete policy "+name, func(ctx context.Context) error {
			err := admission.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			err = admission.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	})
}

// noSpace raises the alarm that a full database raises: the control store takes no write until it is disarmed.
func (a *attack) noSpace() {
	d := between(a.rand, time.Second, 12*time.Second)
	ok, done := a.once("no space")
	if !ok {
		return
	}
	a.about = fmt.Sprintf("for %s", d.Round(time.Millisecond))
	a.lasting(0, func() {
		defer done()
		ctx, cancel := context.WithTimeout(a.loading, 5*time.Second)
		defer cancel()
		members, err := a.etcd.MemberList(ctx)
		if err != nil || len(members.Members) == 0 {
			return // other faults keep it away
		}
		_, _ = pb.NewMaintenanceClient(a.etcd.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_NOSPACE})
		wait.For(a.loading, d)
		a.patiently("disarm the alarm", func(ctx context.Context) error {
			_, err := a.etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{})
			return err
		})
	})
}

// restoreStore takes a backup of all members, and restores it after a while.
func (a *attack) restoreStore() {
	d := between(a.rand, 2*time.Second, 15*time.Second)
	members := a.stores()
	ok, done := a.take(members)
	if !ok {
		return
	}
	a.about = fmt.Sprintf("to its state of %s before", d.Round(time.Millisecond))
	spawn := func() {
		for _, e := range members {
			if err := e.Spawn(); err != nil {
				a.logf("HARNESS start %s: %v", e.Name(), err)
			}
		}
	}
	kill := func() {
		for _, e := range members {
			e.Kill()
		}
	}
	backup := func(e *local.Etcd) string { return e.DataDir() + ".backup" }
	kill()
	for _, e := range members {
		_ = os.RemoveAll(backup(e))
		if err := os.CopyFS(backup(e), os.DirFS(e.DataDir())); err != nil {
			a.logf("HARNESS back up %s: %v", e.Name(), err)
			a.about = ""
		}
	}
	spawn()
	if a.about == "" {
		done()
		return
	}
	a.lasting(d, func() {
		defer done()
		kill()
		for _, e := range members {
			_ = os.RemoveAll(e.DataDir())
			if err := os.Rename(backup(e), e.DataDir()); err != nil {
				a.logf("HARNESS restore %s: %v", e.Name(), err)
			}
		}
		spawn()
		a.logf("the control store was restored")
	})
}

// slow gives a process one twentieth of a CPU for a while.
func (a *attack) slow(m *member) {
	const on, off = 50 * time.Millisecond, 950 * time.Millisecond
	d := between(a.rand, 3*time.Second, 15*time.Second)
	ok, done := a.once("slow " + m.name)
	b := m.running()
	if b == nil || !ok {
		if ok {
			done()
		}
		return
	}
	a.about = fmt.Sprintf("%s for %s", m.name, d.Round(time.Millisecond))
	a.lasting(0, func() {
		defer done()
		for end := time.Now().Add(d); time.Now().Before(end) && a.loading.Err() == nil; {
			if b.Signal(syscall.SIGSTOP) != nil {
				return
			}
			wait.For(a.loading, off)
			_ = b.Signal(syscall.SIGCONT)
			wait.For(a.loading, on)
		}
	})
}

// stepClock sets the wall clock of a process forward or back, and right again after a while.
func (a *attack) stepClock(m *member) {
	by := between(a.rand, time.Second, 10*time.Minute).Round(time.Second)
	if a.rand.IntN(2) == 0 {
		by = -by
	}
	d := between(a.rand, 3*time.Second, 20*time.Second)
	a.about = ""
	ok, done := a.once("clock " + m.name)
	if !ok {
		return
	}
	a.about = fmt.Sprintf("%s by %s for %s", m.name, by, d.Round(time.Millisecond))
	m.setClock(by)
	a.lasting(d, func() { defer done(); m.setClock(0) })
}

// clock is the file that a member's processes read, with the seconds by which their wall clock is wrong.
func (m *member) clock() string { return m.kubeconfig + ".clock" }

func (m *member) setClock(by time.Duration) {
	next := m.clock() + ".new"
	if err := os.WriteFile(next, []byte(strconv.Itoa(int(by/time.Second))), 0o600); err != nil {
		m.run.logf("HARNESS set the clock of %s: %v", m.name, err)
		return
	}
	if err := os.Rename(next, m.clock()); err != nil {
		m.run.logf("HARNESS set the clock of %s: %v", m.name, err)
	}
}

// noLinks leaves gossip and the servers reachable, and accepts gRPC connections between the processes that nobody reads.
func (a *attack) noLinks() {
	d := between(a.rand, time.Second, 12*time.Second)
	for _, m := range a.members {
		a.through(m.link, mode{what: "shut"}, d)
	}
	a.about = fmt.Sprintf("between all processes for %s", d.Round(time.Millisecond))
}

// otherVersion replaces a process by one of the other version of Basalt, in order.
func (a *attack) otherVersion(m *member) {
	m.mu.Lock()
	m.old = !m.old
	version := "this version"
	if m.old {
		version = "the older version"
	}
	m.mu.Unlock()
	a.term(m)
	a.about = fmt.Sprintf("%s is to be of %s", m.name, version)
}
