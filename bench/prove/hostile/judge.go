package hostile

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
)

// state is what is compared before and after an attack.
type state struct {
	starts     map[string]int
	terms      int
	violations map[string]int
	over       int
}

func (r *run) state() state {
	s := state{starts: map[string]int{}, violations: map[string]int{}}
	for _, b := range r.basalts {
		s.starts[b.Name()] = b.Starts()
	}
	for kind, n := range r.auditor.Report().Counts {
		s.violations[string(kind)] = n
	}
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	s.terms, s.over = r.view.terms, len(r.view.over)
	return s
}

// judge judges an attack while its objects are still there.
func (r *run) judge(ctx context.Context, attacks []Attack, begin, end time.Time, before state, row *Row) error {
	problem := func(format string, args ...any) { row.Problems = append(row.Problems, fmt.Sprintf(format, args...)) }
	placed := r.poll(ctx, r.Patience, func() error {
		if n := r.honest.tenants.waiting(end); n > 0 {
			return fmt.Errorf("%d gangs and pods of honest tenants made before the end of the attack are not placed", n)
		}
		return nil
	})
	row.Under = r.honest.between([2]time.Time{begin, end})
	if placed != nil {
		problem("%s later: %v", r.Patience, placed)
	}
	for _, b := range r.basalts {
		if err := r.poll(ctx, 15*time.Second, func() error { return alive(ctx, b) }); err != nil {
			problem("%v", err)
		}
	}
	bypass, inPart, exact := false, false, true
	var words []string
	for _, a := range attacks {
		bypass = bypass || a.Bypass
		inPart = inPart || a.Bypass || a.InPart
		exact = exact && !a.Bypass && a.Right == ""
		if len(attacks) == 1 {
			words = a.Says
		}
	}
	if placed == nil {
		var wg sync.WaitGroup
		fresh := &Row{}
		if r.Measure {
			wg.Go(func() { wait.For(ctx, 10*time.Second) })
		} else {
			wg.Go(func() { r.judgeAfresh(ctx, bypass, fresh) })
		}
		if err := r.poll(ctx, chargesBy, func() error { return r.chargesAgree(ctx, exact) }); err != nil {
			problem("charges: %v", err)
		}
		if err := r.poll(ctx, tellingBy, func() error {
			found, judged := r.view.silent(evil, words, 2*time.Second)
			row.Told = judged
			// A flood is told at a limited rate: of those a sample is enough.
			if len(found) > 0 && (judged < 2_000 || judged-len(found) < 200) {
				return fmt.Errorf("%d of %d waiting pods of the attacker: %s", len(found), judged, found[0])
			}
			return nil
		}); err != nil {
			problem("conditions: %v", err)
		}
		wg.Wait()
		row.Violations += fresh.Violations
		row.Problems = append(row.Problems, fresh.Problems...)
	}
	row.Standing = r.honest.between(
		[2]time.Time{end, time.Now().Add(-time.Second)},
	) // the last second's items are on their way
	after := r.state()
	for name, n := range after.starts {
		if died := n - before.starts[name]; died > 0 {
			row.Deaths += died
			problem("%s ended %d times: %s", name, died, cut(r.lastWords(name)))
		}
	}
	if row.Terms = after.terms - before.terms; row.Terms > 0 {
		problem("%d coordinators lost their term: %s", row.Terms, cut(r.termWords()))
	}
	for kind, n := range after.violations {
		// A tenant that binds some pods of its own gang, or removes bound ones, leaves it in part: nobody can undo that for
		// it.
		if n > before.violations[kind] && !(inPart && kind == string(audit.Partial)) {
			row.Violations += n - before.violations[kind]
			problem("the auditor found %d violations of the kind %s", n-before.violations[kind], kind)
		}
	}
	r.view.mu.Lock()
	for _, over := range r.view.over[before.over:] {
		problem("%s", over)
	}
	clear(r.view.overSeen)
	r.view.mu.Unlock()
	if placed != nil {
		r.logf("everything is started anew, for the attacks that follow: %s: %v", row.Attack, placed)
		return r.revive(ctx)
	}
	return nil
}

// grace is how long something may last that is wrong if it stays.
func (r *run) grace(d time.Duration) time.Duration {
	if r.Busy {
		return 3 * d
	}
	return d
}

// judgeAfresh lets an auditor judge that has not seen the attack. Where pods were bound past Basalt it cannot tell them
// from those that Basalt bound, so what is missing for them, a charge, the rest of their gang or room on their node,
// says nothing. Nor does a gang in part whose tenant deleted pods of it while it was bound: this auditor does not know
// how many it had, and pods without a controller stay.
func (r *run) judgeAfresh(ctx context.Context, bypass bool, row *Row) {
	grace := r.grace(25 * time.Second) // a gang in part is completed or undone within 20 s
	auditing, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	a, err := r.audit(auditing, &wg, grace, nil)
	if err != nil {
		row.Problems = append(row.Problems, fmt.Sprintf("a fresh auditor: %v", err))
		return
	}
	select {
	case <-a.Seen():
		wait.For(ctx, grace+2*time.Second)
	case <-time.After(r.Patience):
		row.Problems = append(row.Problems, "a fresh auditor could not read the cluster")
	}
	for _, v := range a.Report().Violations {
		if bypass && (strings.HasPrefix(v.Object, "gang ") || strings.HasPrefix(v.Object, "node ")) ||
			v.Kind == audit.Partial && strings.Contains(v.Object, "("+evil+"/") {
			continue
		}
		row.Violations++
		if row.Violations <= 5 {
			row.Problems = append(row.Problems, "a fresh auditor: "+cut(v.String()))
		}
	}
}

const chargesBy = 3 * time.Minute // until charges agree: a gang that has lost pods keeps theirs for 2 minutes

// chargesAgree compares what runs of the attacker's with what is charged for it. With exact set, no more may be charged
// than what runs, but for gangs that have pods waiting; where pods were bound past Basalt, they may be charged as well.
func (r *run) chargesAgree(ctx context.Context, exact bool) error {
	charged, err := r.view.compare(evil, exact)
	if err != nil {
		return err
	}
	// The last of these may be used by everybody, by naming none.
	for _, name := range []string{evilQueue, preempts, "pool.evil", "default"} {
		var q v1beta1.Queue
		if err := r.admin.Basalt.Get().Resource("queues").Name(name).Do(ctx).Into(&q); err != nil {
			return err
		}
		if says := statusCPU(&q); says != charged[name] {
			return fmt.Errorf(
				"the status of queue %s says that %d m of CPU are charged, and the reservations say %d m",
				name,
				says,
				charged[name],
			)
		}
		delete(charged, name)
	}
	for queue, amount := range charged {
		return fmt.Errorf("%d m of CPU of the attacker are charged to queue %s", amount, queue)
	}
	return nil
}

// alive asks a process whether it is.
func alive(ctx context.Context, b *local.Basalt) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := b.Get(ctx, "/livez")
	if err != nil {
		return fmt.Errorf("%s: /livez: %w", b.Name(), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: /livez answers %s", b.Name(), resp.Status)
	}
	return nil
}

// lastWords is the line with which a process said that it ends.
func (r *run) lastWords(name string) string {
	for _, b := range r.basalts {
		if b.Name() == name {
			return lastLine(b.Log(), func(line string) bool {
				return strings.HasPrefix(line, "basalt: ") || strings.HasPrefix(line, "panic: ") ||
					strings.HasPrefix(line, "fatal error: ")
			})
		}
	}
	return ""
}

func (r *run) termWords() string {
	for _, b := range r.basalts {
		over := func(line string) bool { return strings.Contains(line, "the term is over") }
		if line := lastLine(b.Log(), over); line != "" {
			return line
		}
	}
	return ""
}

// lastLine returns the last line of a file that is wanted.
func lastLine(path string, wanted func(string) bool) (last string) {
	eachLine(path, func(line string) {
		if wanted(line) {
			last = line
		}
	})
	return last
}

func eachLine(path string, f func(string)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			f(strings.TrimSpace(line))
		}
		if err != nil {
			return
		}
	}
}
