package metric

import (
	"fmt"
	"strings"
)

const introduction = `<!-- Generated from api/metric by go test ./api/metric -rewrite. Do not edit. -->
# Metrics

Shards, coordinators and the auditor serve them at ` + "`:7602/metrics`" + `, with a bearer token. ` + "`deploy/monitoring`" + ` has a PodMonitor, alerts and Grafana dashboards
for them; [operate.md](operate.md) says what to do about each alert. The metrics of the Go runtime (` + "`go_*`" + `) and of the process
(` + "`process_*`" + `) are there, too.

- Units are base units: seconds, bytes, cores. Where one metric covers several resources, the label ` + "`unit`" + ` names the unit: ` + "`core`" + `,
  ` + "`byte`" + ` or ` + "`integer`" + `, as in kube-state-metrics.
- A queue includes all queues below it, as in its status. Select leaves or one level before you sum; ` + "`queue=\"root\"`" + ` has the total.
- Only the coordinator that leads has series of queues. A queue that is deleted has none.
- Durations of gangs are by top-level queue. Each shard has series for the first 100 of them; the others are together in ` + "`queue=\"other\"`" + `.
- There are no series of gangs, pods or nodes, because their number has no bound. A gang's life is in its trace (` + "`--otlp`" + `), in the logs,
  and in ` + "`basalt status NAMESPACE/GANG`" + `.
- 500 queues in two levels, with three resources each, make fewer than 20,000 series over three shards, two
  coordinators, the auditor and the issuer of certificates: ` + "`make metrics-check`" + ` counts them.
`

// Markdown returns deploy/docs/metrics.md.
func Markdown() string {
	var out, renamed strings.Builder
	out.WriteString(introduction)
	for _, s := range sections {
		fmt.Fprintf(&out, "\n## %s\n\n| metric | kind | labels | what it says |\n|---|---|---|---|\n", s.Title)
		for _, m := range s.Metrics {
			help := m.Help
			if m.Absent != "" {
				help += " Absent while " + m.Absent + "."
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), cell(help))
			if m.Was != "" {
				fmt.Fprintf(&renamed, "| %s | `%s` |\n", cell(was(m.Was)), m.Name)
			}
		}
	}
	out.WriteString("\n## Renamed\n\nWhat older versions called them. A unit after a comma is the one that the old metric had.\n\n| old | new |\n|---|---|\n")
	out.WriteString(renamed.String())
	return out.String()
}

// was sets the old name in code style, without what a comma separates from it.
func was(s string) string {
	name, note, noted := strings.Cut(s, ", ")
	if strings.HasPrefix(note, "the sum") {
		return "`" + name + "` (now the sum)"
	}
	if noted {
		return "`" + name + "`, " + note
	}
	return "`" + name + "`"
}

func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;").Replace(s)
}
