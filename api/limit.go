package api

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// AnnotationMaxRuntime of a pod says how long it runs at most, where it has no spec.activeDeadlineSeconds: 30m or 12h.
const AnnotationMaxRuntime = "scheduling.basalt.dev/max-runtime"

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
