package monitoring

// Dashboards returns all dashboards.
func Dashboards() []Dashboard { return []Dashboard{overview, queues, shards, gang} }

var overview = Dashboard{
	File: "overview", Title: "Basalt / Overview", About: "Whether Basalt works, what it does, and what waits.",
	Rows: [][]Panel{{
		within("Leader", 1, 2, `sum(basalt_coordinator_leading) or vector(0)`),
		within("Shards alive", 1, 0, `max(basalt_coordinator_shards) or vector(0)`),
		within("Buckets, of 1024", 1024, 0, `sum(basalt_shard_buckets) or vector(0)`),
		stat("Gangs that run", "short", 0, `sum(basalt_shard_gangs{state="running"})`),
		stat("Gangs that wait", "short", 0, `sum(basalt_shard_waiting_gangs)`),
		stat("CPU allocated", "percentunit", 0, `1 - sum(basalt_shard_free{resource="cpu"}) / sum(basalt_shard_allocatable{resource="cpu"})`),
		stat("Audit violations", "short", 1, `sum(basalt_audit_violations_total)`),
		stat("Broken invariants", "short", 1, `sum(basalt_shard_broken_invariants_total) + sum(basalt_coordinator_broken_invariants_total)`),
	}, {
		lines("Bindings per second", "ops", "Pods that Basalt bound, and Bindings that failed or conflicted.",
			Query{`sum by (outcome) (rate(basalt_shard_bindings_total[$__rate_interval]))`, "{{outcome}}"},
			Query{`sum(rate(basalt_gang_placement_duration_seconds_count[$__rate_interval]))`, "gangs"}),
		lines("Complete to bound", "s", "From when a gang was complete until its minimum was bound. It includes the wait for quota and capacity.",
			quantiles("basalt_gang_placement_duration_seconds", "", "", 50, 99)...),
		lines("Wait for quota", "s", "From a request for quota to its grant.", quantiles("basalt_coordinator_quota_wait_duration_seconds", "", "", 50, 99)...),
	}, {
		stacked("Waiting gangs by reason", "short", "Waiting means that placement goes on and has not failed.", Query{`sum by (reason) (basalt_shard_waiting_gangs)`, "{{reason}}"}),
		stacked("Denials per second by reason", "ops", "What the coordinator answered to requests for quota.", Query{`sum by (reason) (rate(basalt_coordinator_denials_total[$__rate_interval])) > 0`, "{{reason}}"}),
		lines("Allocated part of the nodes", "percentunit", "Of what nodes in the cluster can allocate.",
			Query{`1 - sum by (resource) (basalt_shard_free) / (sum by (resource) (basalt_shard_allocatable) > 0)`, "{{resource}}"}),
	}, {
		lines("Takeovers and leader changes", "short", "In ten minutes. Each restart of a shard causes some takeovers.",
			Query{`sum(increase(basalt_shard_takeover_duration_seconds_count[10m]))`, "takeovers"},
			Query{`sum(increase(basalt_coordinator_terms_total[10m]))`, "terms"}),
		stacked("Requests to the API server", "reqps", "By status code. 409 is a conflict, 429 means that the API server is overloaded.", Query{`sum by (code) (rate(basalt_kube_requests_total[$__rate_interval]))`, "{{code}}"}),
		lines("Control store", "s", "Time of requests, p99.", quantiles("basalt_control_store_request_duration_seconds", "", "method", 99)...),
	}},
}

const (
	ofQueues    = `{queue=~"$queue"}`
	ofResources = `{queue=~"$queue",resource=~"$resource"}`
)

var queues = Dashboard{
	File: "queues", Title: "Basalt / Queues", About: "What queues are charged, and what waits in them. A queue includes all below it.",
	Variables: []Variable{{Name: "queue", Metric: "basalt_queue_admitted_gangs", Label: "queue"},
		{Name: "resource", Metric: "basalt_queue_charged", Label: "resource", Default: "cpu"}},
	Rows: [][]Panel{{
		{Kind: "table", Title: "Queues", First: "waiting", Units: map[string]string{"oldest wait": "s"}, Queries: []Query{
			{`sum by (queue) (basalt_queue_admitted_gangs` + ofQueues + `)`, "admitted"},
			{`sum by (queue) (basalt_queue_waiting_gangs` + ofQueues + `)`, "waiting"},
			{`max by (queue) (basalt_queue_oldest_wait_seconds` + ofQueues + `)`, "oldest wait"},
		}},
	}, {
		lines("Charged part of the capability", "percentunit",
			"Of the 20 fullest. At 1 a queue is full: further gangs wait, or wait in an ancestor.",
			Query{`topk(20, max by (queue, resource) (basalt_queue_charged` + ofResources + `) / ` +
				`(max by (queue, resource) (basalt_queue_capability` + ofResources + `) > 0))`, "{{queue}} {{resource}}"}),
		lines("Charged", "short", "In the resource's unit, of the 20 with most.",
			most("basalt_queue_charged"+ofResources, "queue, resource, unit", "{{queue}} {{resource}} ({{unit}})")),
		lines("Guarantee in force", "short", "In the resource's unit, of the 20 with most.",
			most("basalt_queue_guarantee"+ofResources, "queue, resource, unit", "{{queue}} {{resource}} ({{unit}})")),
	}, {
		lines("Charged part of what is deserved", "percentunit",
			"Of the 20 with least. Below 1, the queue may reclaim what it lacks, if its gangs want it.",
			Query{`bottomk(20, max by (queue, resource) (basalt_queue_charged` + ofResources + `) / ` +
				`(max by (queue, resource) (basalt_queue_deserved` + ofResources + `) > 0))`, "{{queue}} {{resource}}"}),
		lines("Deserved", "short", "In the resource's unit, of the 20 with most.",
			most("basalt_queue_deserved"+ofResources, "queue, resource, unit", "{{queue}} {{resource}} ({{unit}})")),
		lines("Lacks what it deserves", "s", "For how long, while a gang waits for it: the 20 longest.",
			most("basalt_queue_deserved_wait_seconds"+ofQueues, "queue", "{{queue}}")),
	}, {
		lines("Waiting for quota", "short", "Of the 20 with most.",
			most("basalt_queue_waiting_gangs"+ofQueues, "queue", "{{queue}}")),
		lines("Oldest wait for quota", "s", "How long the oldest gang that waits has been complete: the 20 longest.",
			most("basalt_queue_oldest_wait_seconds"+ofQueues, "queue", "{{queue}}")),
		lines("Admitted gangs", "short", "Of the 20 with most.",
			most("basalt_queue_admitted_gangs"+ofQueues, "queue", "{{queue}}")),
	}, {
		lines("First seen to bound, p90", "s", "By top-level queue.", quantiles("basalt_gang_scheduling_duration_seconds", ofQueues, "queue", 90)...),
		lines("Complete to bound, p90", "s", "By top-level queue.", quantiles("basalt_gang_placement_duration_seconds", ofQueues, "queue", 90)...),
		lines("Gangs bound per minute", "short", "By top-level queue.", Query{`60 * sum by (queue) (rate(basalt_gang_placement_duration_seconds_count` + ofQueues + `[$__rate_interval]))`, "{{queue}}"}),
	}},
}

const ofPods = `{pod=~"$pod"}`

var shards = Dashboard{
	File: "shards", Title: "Basalt / Shards", About: "What each process does, and how far it is behind.",
	Variables: []Variable{{Name: "pod", Metric: "basalt_build_info", Label: "pod"}},
	Rows: [][]Panel{{
		lines("Buckets", "short", "Over all shards there are 1024.", Query{`sum by (pod) (basalt_shard_buckets` + ofPods + `)`, "{{pod}}"}),
		lines("Epoch of the table", "short", "Lines that lie apart are shards that are behind.",
			Query{`max by (pod) (basalt_shard_table_epoch` + ofPods + `)`, "{{pod}}"}, Query{`max(basalt_coordinator_table_epoch)`, "leader"}),
		lines("Takeover, p90", "s", "From the table to the first gang that may be served.", quantiles("basalt_shard_takeover_duration_seconds", ofPods, "pod", 90)...),
	}, {
		lines("Gangs", "short", "", Query{`sum by (pod) (basalt_shard_gangs` + ofPods + `)`, "{{pod}}"}),
		stacked("Gangs by state", "short", "Each gang is in one state.", Query{`sum by (state) (basalt_shard_gangs` + ofPods + `)`, "{{state}}"}),
		lines("Nodes", "short", "Out of sync: more is in use than allocatable.", Query{`sum by (pod, state) (basalt_shard_nodes` + ofPods + `)`, "{{pod}} {{state}}"}),
	}, {
		lines("Step, p99", "s", "One batch of events in the cores, of shards and of the coordinator that leads.",
			append(quantiles("basalt_shard_step_duration_seconds", ofPods, "pod", 99),
				quantiles("basalt_coordinator_step_duration_seconds", ofPods, "pod", 99)...)...),
		lines("Inbox", "short", "Batches that wait for the cores. It holds 4096.", Query{`max by (pod) (basalt_shard_inbox_events` + ofPods + `)`, "{{pod}}"}),
		lines("Since a watch brought something", "s", "A bookmark comes once a minute. More than a few minutes mean an old view.",
			Query{`max by (pod) (time() - basalt_watch_progress_timestamp_seconds` + ofPods + `)`, "{{pod}}"}),
	}, {
		lines("Holds per second", "ops", "", Query{`sum by (outcome) (rate(basalt_shard_holds_total` + ofPods + `[$__rate_interval]))`, "{{outcome}}"}),
		lines("Commits per second", "ops", "", Query{`sum by (outcome) (rate(basalt_shard_commits_total` + ofPods + `[$__rate_interval]))`, "{{outcome}}"}),
		lines("Intents without outcome", "short", "", Query{`sum by (pod) (basalt_shard_intents` + ofPods + `)`, "{{pod}}"}),
	}, {
		lines("Messages per second", "ops", "", Query{`sum by (pod, to) (rate(basalt_shard_messages_total` + ofPods + `[$__rate_interval]))`, "{{pod}} to {{to}}"}),
		lines("API server, p99", "s", "By method.", quantiles("basalt_kube_request_duration_seconds", ofPods, "method", 99)...),
		lines("Transaction of the coordinator", "s", "", quantiles("basalt_coordinator_commit_duration_seconds", "", "", 50, 99)...),
	}, {
		lines("CPU", "short", "Cores.", Query{`rate(process_cpu_seconds_total` + ofPods + `[$__rate_interval])`, "{{pod}}"}),
		lines("Resident memory", "bytes", "", Query{`process_resident_memory_bytes` + ofPods, "{{pod}}"}),
		lines("Control store", "bytes", "At the quota it refuses writes.",
			Query{`max by (endpoint) (basalt_control_store_size_bytes)`, "{{endpoint}} size"}, Query{`max by (endpoint) (basalt_control_store_size_in_use_bytes)`, "{{endpoint}} in use"}, Query{`min(basalt_control_store_quota_bytes)`, "quota"}),
	}},
}

var gang = Dashboard{
	File: "gang", Title: "Basalt / One gang", About: "What happened to one gang: its trace, the logs that name it, and its queue.",
	Variables: []Variable{{Name: "gang", Default: "default/train"},
		{Name: "queue", Metric: "basalt_queue_admitted_gangs", Label: "queue", Default: "default"}},
	Rows: [][]Panel{{
		{Kind: "text", Title: "How to read this", Text: "Set **gang** to `NAMESPACE/NAME` of a PodGroup, or of a pod that has none. There are no metrics of single gangs, for their number has no bound.\n\n" +
			"- `basalt status NAMESPACE/NAME`, and the conditions of the PodGroup, say why it waits now.\n" +
			"- The trace has one span for each step: queue wait, reserve, hold, commit, bind. It is exported when the gang's minimum is bound (`--otlp`).\n" +
			"- Set **queue** to the gang's queue to see what it competes with."},
	}, {
		{Kind: "traces", Title: "Trace", About: "Needs --otlp and Tempo.", Queries: []Query{{Expr: `{ resource.service.namespace = "basalt" && span.gang = "$gang" }`}}},
		{Kind: "logs", Title: "Logs", About: "Needs Loki.", Queries: []Query{{Expr: "{namespace=\"basalt-system\"} |= `$gang`"}}},
	}, {
		lines("Its queue: waiting for quota", "short", "", Query{`max by (queue) (basalt_queue_waiting_gangs` + ofQueues + `)`, "{{queue}}"}),
		lines("Its queue: oldest wait for quota", "s", "", Query{`max by (queue) (basalt_queue_oldest_wait_seconds` + ofQueues + `)`, "{{queue}}"}),
		lines("Its queue: charged part of the capability", "percentunit", "",
			Query{`max by (queue, resource) (basalt_queue_charged` + ofQueues + `) / (max by (queue, resource) (basalt_queue_capability` + ofQueues + `) > 0)`, "{{queue}} {{resource}}"}),
	}},
}
