package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// Config of what is written. Package home has the defaults and what the fields mean.
type Config struct {
	Self                            api.Incarnation
	StatusEvery, UsageEvery         time.Duration
	CountsEvery, StatusBackoffLimit time.Duration
	StatusBudget, UsageBudget       int
}

// backOff returns the pause after a write that failed.
func (c *Config) backOff(d *time.Duration) time.Duration {
	*d = min(max(2**d, c.StatusEvery), c.StatusBackoffLimit)
	return *d
}

// next returns the stamp of the write after the last one, which is also newer than what the object shows; seen may be nil.
func (c *Config) next(last v1beta1.Stamp, seen *v1beta1.Stamp, epoch int64) v1beta1.Stamp {
	self := string(c.Self)
	s := v1beta1.Stamp{Epoch: epoch, Writer: self, Sequence: 1}
	if last.Epoch == epoch {
		s.Sequence = last.Sequence + 1
	}
	if seen != nil && seen.Epoch == epoch && seen.Writer == self {
		s.Sequence = max(s.Sequence, seen.Sequence+1)
	}
	return s
}

// lags reports whether what an object shows is older than our last write.
func (c *Config) lags(seen, last v1beta1.Stamp) bool {
	return seen.Writer == string(c.Self) && seen.Epoch == last.Epoch && seen.Sequence < last.Sequence
}

// condition makes a condition; the time of its last transition is kept when its status is the same as before.
func condition(now time.Time, before []metav1.Condition, kind string, v Verdict, generation int64) metav1.Condition {
	out := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: v.Code, Message: Short(v.Message),
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if v.Yes {
		out.Status = metav1.ConditionTrue
	}
	for i := range before {
		if b := &before[i]; b.Type == kind && b.Status == out.Status && !b.LastTransitionTime.IsZero() {
			out.LastTransitionTime = b.LastTransitionTime
		}
	}
	return out
}

// Short bounds a message to users: the API server takes 32,768 bytes.
func Short(message string) string { return api.Shorten(message, maxWords) }

// maxWords bounds a message to users, in bytes.
const maxWords = 1024
