package api_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

func TestLimitOfAPod(t *testing.T) {
	for _, row := range []struct {
		what     string
		deadline int64
		says     string
		seconds  int32
		refused  string
	}{
		{what: "nothing"},
		{"a deadline", 600, "", 600, ""},
		{"both: the kubelet ends it", 600, "1h", 600, ""},
		{"an annotation", 0, "1h30m", 5400, ""},
		{"part of a second counts as one", 0, "1500ms", 2, ""},
		{"a deadline beyond a year", 1 << 40, "", 365 * 24 * 3600, ""},
		{"a year", 0, "8760h", 365 * 24 * 3600, ""},
		{"more", 0, "8760h1s", 0, `"8760h1s" is not a time`},
		{"nothing at all", 0, "0s", 0, `"0s" is not a time`},
		{"less than nothing", 0, "-5m", 0, `"-5m" is not a time`},
		{"words of Slurm", 0, "1-00:00:00", 0, "such as 30m or 12h"},
		{"a novel", 0, strings.Repeat("long ", 1000), 0, "is not a time"},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{SchedulerName: "basalt"}}
		if row.deadline > 0 {
			p.Spec.ActiveDeadlineSeconds = &row.deadline
		}
		if row.says != "" {
			p.Annotations = map[string]string{api.AnnotationMaxRuntime: row.says}
		}
		for _, q := range []*v1.Pod{p, api.StripPod(p)} {
			got := api.FromPod(q, volumes{}, api.Rules{})
			words := ""
			if got.Refused != nil {
				words = got.Refused.Message
			}
			if got.LimitSeconds != row.seconds || row.refused == "" != (words == "") ||
				!strings.Contains(words, row.refused) || len(words) > 200 {
				t.Errorf("%s: %d, %q", row.what, got.LimitSeconds, words)
			}
		}
	}
}
