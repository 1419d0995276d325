package hostile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
)

// strikers carry out the attacks of one phase: the attacker of the run, and one more for each attack that has a
// namespace of its own, which is deleted in the middle of it.
type strikers struct {
	*run
	attacks []Attack
	by      []*Attacker // of each attack
	all     []*Attacker // each once

	accepted, refused int64 // before the phase
}

func (r *run) strikers(ctx context.Context, attacks []Attack) (*strikers, error) {
	s := &strikers{run: r, attacks: attacks, all: []*Attacker{r.attacker}}
	for _, attack := range attacks {
		if !attack.OwnNamespace {
			s.by = append(s.by, r.attacker)
			continue
		}
		target := r.target
		target.Namespace = fmt.Sprintf("%s-%s-%d", evil, attack.Name, len(r.quiet)) // the last phase's may still be ending
		if err := r.createNamespace(ctx, target.Namespace); err != nil {
			return nil, err
		}
		a, err := NewAttacker(ctx, r.Cluster.Config(local.Admin), target, r.Seed)
		if err != nil {
			return nil, err
		}
		s.by, s.all = append(s.by, a), append(s.all, a)
	}
	s.accepted, s.refused = s.count()
	return s, nil
}

// count returns how many writes of the phase the API server has accepted and refused.
func (s *strikers) count() (accepted, refused int64) {
	for _, a := range s.all {
		yes, no := a.Count()
		accepted, refused = accepted+yes, refused+no
	}
	return accepted - s.accepted, refused - s.refused
}

// strike carries the attacks out for some time; on a slow machine until each attacker has done something.
func (s *strikers) strike(ctx context.Context, lasts time.Duration) {
	begin := time.Now()
	attacking, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		idle := func(a *Attacker) bool {
			accepted, _ := a.Count()
			if a == s.attacker {
				accepted -= s.accepted
			}
			return accepted == 0 && slices.Contains(s.by, a)
		}
		over := func() bool { return time.Since(begin) >= s.Patience || !slices.ContainsFunc(s.all, idle) }
		const pause = 100 * time.Millisecond
		for wait.For(ctx, lasts/2); ctx.Err() == nil && !over(); wait.For(ctx, pause) {
		}
		for _, a := range s.all[1:] {
			_ = s.admin.Core.CoreV1().Namespaces().Delete(ctx, a.Namespace, metav1.DeleteOptions{})
		}
		wait.For(ctx, max(pause, time.Until(begin.Add(lasts))))
	})
	for i, attack := range s.attacks {
		wg.Go(func() { s.by[i].Run(attacking, attack) })
	}
	wg.Wait()
}

// empty removes what is left in the namespaces of the phase.
func (s *strikers) empty(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanBy)
	defer cancel()
	for _, a := range s.all[1:] {
		empty(ctx, s.admin, a.Namespace)
	}
}
