package report

import (
	"fmt"

	"basalt.dev/basalt/api/v1alpha1"
)

// NoDomain says that no topology domain has room for pods that are to be in one, or that the one in which the gang is has none for them.
func NoDomain(key, where string, pods, most int) Reason {
	words := fmt.Sprintf("no domain of %s has room for %s: the one with the most has room for %d", key, count(pods), most)
	switch {
	case where != "":
		words = fmt.Sprintf("the gang is in %s=%s, which has room for %d of %s", key, where, min(most, pods), count(pods))
	case most == 0:
		words = fmt.Sprintf("no domain of %s has room for any of %s", key, count(pods))
	case most >= pods:
		words = fmt.Sprintf("no domain of %s has room for %s together", key, count(pods))
	}
	return Reason{v1alpha1.ReasonUnschedulable, words}
}

// DomainsLater says that node shards did not count by domain.
func DomainsLater() Reason {
	return Reason{v1alpha1.ReasonUnschedulable, "its constraints are not compared with all nodes yet, because those of the pods in its namespace take too much time"}
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}
