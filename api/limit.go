package api

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// AnnotationMaxRuntime of a pod says how long it runs at most, where it has no spec.activeDeadlineSeconds: 30m or 12h.
const AnnotationMaxRuntime = "scheduling.basalt.dev/max-runtime"

// AnnotationUntil is the annotation that a Binding carries onto the pod beside LabelGang, where its gang has a limit:
// when the gang will have left if it is evicted as soon as it is past that, as 2026-01-01T00:00:00Z. That ends nobody.
// Without the label it counts for nothing.
const AnnotationUntil = "scheduling.basalt.dev/until"

// MaxRuntime is the longest limit that anything may say: a year.
const MaxRuntime = 365 * 24 * time.Hour

// maxRuntimeWord is how much of the annotation is kept of one that cannot be read.
const maxRuntimeWord = 32

// runsFor returns for how many seconds a pod runs at most, as it says, 0 where it says nothing; or why that cannot be
// read.
func runsFor(p *v1.Pod) (seconds int32, unreadable string) {
	if s := p.Spec.ActiveDeadlineSeconds; s != nil && *s > 0 {
		return int32(min(*s, int64(MaxRuntime/time.Second))), ""
	}
	says := p.Annotations[AnnotationMaxRuntime]
	if says == "" {
		return 0, ""
	}
	d, err := time.ParseDuration(says)
	if err != nil || d < time.Second || d > MaxRuntime {
		return 0, fmt.Sprintf("metadata.annotations[%s]: %q is not a time from 1s to 8760h, such as 30m or 12h",
			AnnotationMaxRuntime, Shorten(says, maxRuntimeWord))
	}
	return int32((d + time.Second - 1) / time.Second), ""
}

// untilOf reads AnnotationUntil, 0 where a pod does not say it as a Binding does.
func untilOf(p *v1.Pod) int64 {
	says := p.Annotations[AnnotationUntil]
	if len(says) != len(time.RFC3339)-len("07:00") || p.Labels[LabelGang] == "" {
		return 0
	}
	at, err := time.Parse(time.RFC3339, says)
	if err != nil {
		return 0
	}
	return max(0, at.Unix())
}

// FormatUntil is AnnotationUntil of a Unix time in seconds.
func FormatUntil(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }
