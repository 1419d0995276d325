package audit

import (
	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// RequestsOf is what an auditor that ignores nothing computes for a pod.
func RequestsOf(p *v1.Pod) api.Resources { return New(Config{}).requestsOf(p) }
