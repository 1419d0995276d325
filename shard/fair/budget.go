package fair

import "time"

// Budget limits what each namespace spends of something: a token bucket for each, which fills by Rate a second. What a namespace
// may have spent before it has to wait is for the caller to say. What it spends is taken out afterwards, so that it can be in debt.
type Budget struct {
	Rate int64 // that a namespace gets back in a second
	Most int64 // that a namespace can owe, 0 for no limit

	spent map[string]*spent
}

// spent is what a namespace took out of its bucket. It is forgotten when the bucket is full again.
type spent struct {
	amount int64
	since  time.Time // the bucket fills from then on
}

// refill fills the bucket for the time that has passed.
func (s *spent) refill(now time.Time, rate int64) {
	if s.since.IsZero() {
		s.since = now
	}
	if passed := now.Sub(s.since).Milliseconds(); passed > 0 {
		s.since = s.since.Add(time.Duration(passed) * time.Millisecond)
		s.amount = max(0, s.amount-min(passed, 1<<30)*rate/1000)
	}
}

// Spent returns what a namespace has taken out of its bucket and not got back yet.
func (b *Budget) Spent(now time.Time, namespace string) int64 {
	s := b.spent[namespace]
	if s == nil {
		return 0
	}
	s.refill(now, b.Rate)
	return s.amount
}

// Spend takes an amount out of the bucket of a namespace.
func (b *Budget) Spend(now time.Time, namespace string, amount int64) {
	s := b.spent[namespace]
	if s == nil {
		if b.spent == nil {
			b.spent = map[string]*spent{}
		}
		s = &spent{since: now}
		b.spent[namespace] = s
	}
	s.refill(now, b.Rate)
	if s.amount += amount; b.Most > 0 {
		s.amount = min(s.amount, b.Most)
	}
}

// Forget drops the namespaces whose buckets are full.
func (b *Budget) Forget(now time.Time) {
	for namespace, s := range b.spent {
		if s.refill(now, b.Rate); s.amount == 0 {
			delete(b.spent, namespace)
		}
	}
}

// Tokens is a token bucket that all namespaces share. It fills by Rate a second, holds as many, and is full at first. One with a Rate
// of zero or less gives nothing.
type Tokens struct {
	Rate int

	spent spent // in thousandths
}

// Take takes a token, and reports whether there was one.
func (t *Tokens) Take(now time.Time) bool {
	const token = 1000
	full := int64(t.Rate) * token
	if t.spent.refill(now, full); t.spent.amount+token > full {
		return false
	}
	t.spent.amount += token
	return true
}
