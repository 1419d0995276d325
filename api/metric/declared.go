package metric

// Waits of gangs are between what a person notices and a day.
var waits = []float64{0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600, 3600}

// Steps take between a microsecond and what no process should take.
var steps = []float64{1e-6, 4e-6, 16e-6, 64e-6, 256e-6, 1e-3, 4e-3, 16e-3, 64e-3, 0.25, 1, 4}

// Calls take between a millisecond and the longest timeout.
var calls = []float64{0.001, 0.004, 0.016, 0.064, 0.25, 1, 4, 16}

// Of every process.
var (
	_ = section("All processes")

	BuildInfo = declare(Metric{Name: "basalt_build_info", Kind: Gauge, Labels: []string{"version", "revision", "go_version"},
		Help: "Always 1; the labels say what was built."})
	CertificateExpiry = declare(Metric{Name: "basalt_certificate_expiry_timestamp_seconds", Kind: Gauge,
		Labels: []string{"certificate"},
		Help: "When a certificate expires, in Unix time: process and control_store are those that a process shows to " +
			"the others and to the control store; basalt certs shows each that it issues, by the name of its Secret.",
		Absent: "there is no such certificate"})
)

// Of shards and coordinators.
var (
	_ = section("Shards and coordinators")

	GossipPeers = declare(Metric{Name: "basalt_gossip_peers", Kind: Gauge,
		Help: "Other processes that gossip considers alive."})
	KubeRequests = declare(Metric{Name: "basalt_kube_requests_total", Kind: Counter, Labels: []string{"method", "code"},
		Help: "Requests to the API server, by HTTP method and status code. The code of a request without a response is <error>."})
	KubeRequestDuration = declare(Metric{Name: "basalt_kube_request_duration_seconds", Kind: Histogram, Labels: []string{"method"}, Buckets: calls,
		Help: "Time until the API server responded. Of a watch, until it began."})
	WatchProgress = declare(Metric{Name: "basalt_watch_progress_timestamp_seconds", Kind: Gauge, Labels: []string{"resource"},
		Help: "Unix time of the last list, event or bookmark. " +
			"The API server sends a bookmark once a minute even if nothing changes, " +
			"so more than a few minutes mean that the process sees an old state."})
	WatchLists = declare(Metric{Name: "basalt_watch_lists_total", Kind: Counter, Labels: []string{"resource"},
		Help: "Lists of a resource: at the start, after a takeover, and where a watch could not be resumed."})
	WatchFailures = declare(Metric{Name: "basalt_watch_failures_total", Kind: Counter, Labels: []string{"resource"},
		Help: "Lists and watches that failed and are retried."})
	WatchUnreadable = declare(Metric{Name: "basalt_watch_unreadable_objects_total", Kind: Counter, Labels: []string{"resource"},
		Help: "Objects in lists and watches of the API server that could not be decoded, or only without their status."})
	StoreRequests = declare(Metric{Name: "basalt_control_store_requests_total", Kind: Counter, Labels: []string{"method", "code"},
		Help: "Requests to the control store, by method and gRPC code. Codes other than OK are errors; most are retried."})
	StoreRequestDuration = declare(Metric{Name: "basalt_control_store_request_duration_seconds", Kind: Histogram, Labels: []string{"method"}, Buckets: calls,
		Help: "Time until the control store responded."})
	StoreRefusals = declare(Metric{Name: "basalt_control_store_refusals_total", Kind: Counter, Labels: []string{"reason"},
		Help: "Requests that the control store refused and that are retried, by reason: no_space, corrupt, permission, behind. An operator must act."})
)

// Of shards.
var (
	_ = section("Shards")

	GangDuration = declare(Metric{Name: "basalt_gang_scheduling_duration_seconds", Kind: Histogram, Labels: []string{"queue"}, Buckets: waits,
		Help: "Time from when a gang was first seen until its minimum was bound, by top-level queue. It includes the time in which pods were missing.", Absent: "no gang was bound"})
	GangPlacement = declare(Metric{Name: "basalt_gang_placement_duration_seconds", Kind: Histogram, Labels: []string{"queue"}, Buckets: waits,
		Help: "Time from when a gang was complete until its minimum was bound, by top-level queue: the wait for quota and capacity, and Basalt's own time.", Absent: "no gang was bound"})
	ShardGangs = declare(Metric{Name: "basalt_shard_gangs", Kind: Gauge, Labels: []string{"state"},
		Help: "Gangs of the queues of this shard, by state (see shard/home/state.go). Each is in one state.", Was: `basalt_shard_gangs{state="known"}, the sum`})
	ShardWaiting = declare(Metric{Name: "basalt_shard_waiting_gangs", Kind: Gauge, Labels: []string{"reason"},
		Help: "Gangs that wait, or some pods of which do, by the reason that their conditions name. Each has one reason; Waiting means that placement has not failed.", Absent: "no gang has waited for the reason", Was: `basalt_shard_gangs{state="waiting"}, the sum`})
	ShardOldestWait = declare(Metric{Name: "basalt_shard_oldest_wait_seconds", Kind: Gauge, Labels: []string{"reason"},
		Help: "How long the oldest gang that waits, and has not started, has been complete, by the reason that its " +
			"conditions name; 0 if none waits for it.",
		Absent: "no gang has waited for the reason"})
	ShardTakeovers = declare(Metric{Name: "basalt_shard_takeover_duration_seconds", Kind: Histogram, Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		Help: "Time from the table that gave buckets to this shard until it was active for them."})
	ShardTableEpoch = declare(Metric{Name: "basalt_shard_table_epoch", Kind: Gauge,
		Help: "Epoch of the bucket table that this shard follows. Shards with different epochs are behind."})
	ShardBuckets  = declare(Metric{Name: "basalt_shard_buckets", Kind: Gauge, Help: "Buckets that this shard owns and is active for. Over all shards there are 1024."})
	ShardBindings = declare(Metric{Name: "basalt_shard_bindings_total", Kind: Counter, Labels: []string{"outcome"},
		Help: "Bindings sent, by outcome: ok, conflict, not_found, unknown (it is resolved later).", Absent: "no Binding had the outcome", Was: `basalt_shard_bindings_total{answer}`})
	ShardHolds = declare(Metric{Name: "basalt_shard_holds_total", Kind: Counter, Labels: []string{"outcome"},
		Help: "Pods for which a hold was requested here, by outcome: held, refused, or lost (expired, or taken by an older gang)."})
	ShardCommits = declare(Metric{Name: "basalt_shard_commits_total", Kind: Counter, Labels: []string{"outcome"},
		Help: "Commits answered, by outcome.", Absent: "no commit had the outcome"})
	ShardIntents = declare(Metric{Name: "basalt_shard_intents", Kind: Gauge, Help: "Intents whose outcome is not resolved."})
	ShardNodes   = declare(Metric{Name: "basalt_shard_nodes", Kind: Gauge, Labels: []string{"state"},
		Help: "Nodes owned, by state: in_sync, or out_of_sync (more is in use than allocatable).", Absent: "the shard owns no node yet", Was: `basalt_shard_nodes{state="owned"}, the sum`})
	ShardAllocatable = declare(Metric{Name: "basalt_shard_allocatable", Kind: Gauge, Labels: []string{"resource", "unit"},
		Help: "Allocatable amount of the nodes owned, by resource, in the unit that the label names.", Absent: "the shard owns no node yet"})
	ShardFree = declare(Metric{Name: "basalt_shard_free", Kind: Gauge, Labels: []string{"resource", "unit"},
		Help: "Free amount of the nodes owned, by resource, in the unit that the label names.", Absent: "the shard owns no node yet", Was: `basalt_shard_free{resource}, milli-cores`})
	ShardSteps = declare(Metric{Name: "basalt_shard_step_duration_seconds", Kind: Histogram, Buckets: steps,
		Help: "Time that the cores took for one batch: a single event, or several events of a watch.", Was: "basalt_shard_step_seconds"})
	ShardInbox     = declare(Metric{Name: "basalt_shard_inbox_events", Kind: Gauge, Help: "Batches of events queued for the cores."})
	ShardAPIWrites = declare(Metric{Name: "basalt_shard_api_writes_total", Kind: Counter, Labels: []string{"kind", "outcome"},
		Help: "Writes to the API server other than Bindings, by kind and outcome.", Absent: "no such write was sent"})
	ShardDisrupted = declare(Metric{Name: "basalt_shard_disrupted_pods_total", Kind: Counter,
		Help: "Pods that were evicted although a PodDisruptionBudget did not allow it: " +
			"budgets lower a victim's rank, but do not block its eviction."})
	ShardEventsDropped = declare(Metric{Name: "basalt_shard_events_dropped_total", Kind: Counter,
		Help: "Kubernetes events about waiting and started gangs that were not written, because a namespace or the shard had no budget left. The conditions say the same."})
	ShardTierFailures = declare(Metric{Name: "basalt_shard_node_tier_failures_total", Kind: Counter,
		Labels: []string{"class", "of"},
		Help: "Objects for which an expression of nodeTiers failed, by class, and by what it is of: " +
			"a node is in the last tier then, and a pod is not of the class. The log names the first ones.",
		Absent: "none has failed"})
	ShardTransactions = declare(Metric{Name: "basalt_shard_transactions_total", Kind: Counter, Labels: []string{"kind", "accepted"},
		Help: "Transactions on the control store, by kind and whether they were accepted.", Absent: "no such transaction was sent"})
	ShardMessages = declare(Metric{Name: "basalt_shard_messages_total", Kind: Counter, Labels: []string{"kind", "to"},
		Help: "Messages sent, by type and receiver: self, shard, coordinator.", Absent: "no such message was sent"})
	ShardForeignBindings  = declare(Metric{Name: "basalt_shard_foreign_bindings_total", Kind: Counter, Help: "Pods that another scheduler bound although Basalt was to place them: another scheduler serves a name of Basalt's."})
	ShardBrokenInvariants = declare(Metric{Name: "basalt_shard_broken_invariants_total", Kind: Counter, Help: "Broken invariants of Basalt's own; each is logged at error level. Anything above 0 is a bug."})
	RelayStreams          = declare(Metric{Name: "basalt_relay_streams", Kind: Gauge, Labels: []string{"resource"}, Help: "Watches that this process serves to others.", Absent: "it serves none"})
	RelayWatches          = declare(Metric{Name: "basalt_relay_watches", Kind: Gauge, Labels: []string{"resource"}, Help: "Watches that this process reads from a relay instead of the API server.", Absent: "it reads none"})
	RelayEvents           = declare(Metric{Name: "basalt_relay_events_total", Kind: Counter, Labels: []string{"resource"}, Help: "Watch events that this process read in order to relay them.", Absent: "it relays none"})
	RelayTooOld           = declare(Metric{Name: "basalt_relay_too_old_total", Kind: Counter, Labels: []string{"resource"}, Help: "Watches rejected or ended because the requested events are no longer buffered.", Absent: "none was rejected"})
)

// Of queues.
var (
	_ = section("Queues")

	queue    = []string{"queue"}
	resource = []string{"queue", "resource", "unit"}

	QueueCharged = declare(Metric{Name: "basalt_queue_charged", Kind: Gauge, Labels: resource,
		Help: "Amount charged to a queue and its descendants, in the unit that the label names.", Absent: "nothing is charged", Was: `basalt_queue_charged{queue,resource}, milli-cores`})
	QueueCapability = declare(Metric{Name: "basalt_queue_capability", Kind: Gauge, Labels: resource,
		Help: "The most that a queue and its descendants may be charged, in the unit that the label names.", Absent: "the queue does not limit the resource"})
	QueueGuarantee = declare(Metric{Name: "basalt_queue_guarantee", Kind: Gauge, Labels: resource,
		Help: "The guarantee of a queue that is in force, in the unit that the label names.", Absent: "the queue has no guarantee"})
	QueueDeserved = declare(Metric{Name: "basalt_queue_deserved", Kind: Gauge, Labels: resource,
		Help:   "What a queue deserves, as it is in force, in the unit that the label names.",
		Absent: "the queue deserves nothing"})
	QueueAdmitted = declare(Metric{Name: "basalt_queue_admitted_gangs", Kind: Gauge, Labels: queue,
		Help: "Gangs of a queue and its descendants that are charged."})
	QueueWaiting = declare(Metric{Name: "basalt_queue_waiting_gangs", Kind: Gauge, Labels: queue,
		Help: "Gangs of a queue and its descendants that wait for quota."})
	QueueOldestWait = declare(Metric{Name: "basalt_queue_oldest_wait_seconds", Kind: Gauge, Labels: queue,
		Help: "How long the oldest gang of a queue and its descendants that waits for quota has been complete; 0 if none waits."})
	QueueDeservedWait = declare(Metric{Name: "basalt_queue_deserved_wait_seconds", Kind: Gauge, Labels: queue,
		Help: "How long a queue has lacked what it deserves: a gang of the queue or of its descendants waits for quota, " +
			"and the queue, with it, would stay within what it deserves. 0 if none does. " +
			"Of a path, the lowest such queue counts.",
		Absent: "the queue deserves nothing"})
)

// Of coordinators.
var (
	_ = section("Coordinators")

	CoordinatorLeading = declare(Metric{Name: "basalt_coordinator_leading", Kind: Gauge, Help: "1 while this process leads, else 0."})
	CoordinatorTerms   = declare(Metric{Name: "basalt_coordinator_terms_total", Kind: Counter, Help: "Terms that this process began to lead. The sum over all processes counts leader changes."})
	TermsFailed        = declare(Metric{Name: "basalt_coordinator_terms_failed_total", Kind: Counter, Labels: []string{"reason"},
		Help: "Terms of this process that ended before it stopped: lease (lost, or another leads), record (a record that cannot be written: a bug), other.", Absent: "none has failed"})
	CoordinatorTableEpoch = declare(Metric{Name: "basalt_coordinator_table_epoch", Kind: Gauge, Help: "Epoch of the bucket table of the leader; 0 in a process that does not lead."})
	CoordinatorShards     = declare(Metric{Name: "basalt_coordinator_shards", Kind: Gauge, Help: "Shards that the leader considers alive; 0 in a process that does not lead."})
	CoordinatorCommits    = declare(Metric{Name: "basalt_coordinator_commit_duration_seconds", Kind: Histogram, Buckets: []float64{0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096},
		Help: "Time of one transaction.", Was: "basalt_coordinator_commit_seconds"})
	CoordinatorSteps = declare(Metric{Name: "basalt_coordinator_step_duration_seconds", Kind: Histogram, Buckets: steps,
		Help: "Time that the core took for one event, or for as many messages as had come."})
	CoordinatorOps = declare(Metric{Name: "basalt_coordinator_commit_operations", Kind: Histogram, Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 120},
		Help: "Operations in one transaction."})
	QuotaWait = declare(Metric{Name: "basalt_coordinator_quota_wait_duration_seconds", Kind: Histogram,
		Buckets: append([]float64{0.005, 0.01, 0.025, 0.05}, waits...),
		Help:    "Time from when a request for quota came to this leader until it was granted."})
	CoordinatorGrants  = declare(Metric{Name: "basalt_coordinator_grants_total", Kind: Counter, Help: "Grants sent: reservations created, resized, or acknowledged again."})
	CoordinatorDenials = declare(Metric{Name: "basalt_coordinator_denials_total", Kind: Counter, Labels: []string{"reason"},
		Help: "Denials sent, by reason. A gang that waits is told again when the reason changes."})
	Claims = declare(Metric{Name: "basalt_claims_total", Kind: Counter, Labels: []string{"outcome"},
		Help: "Claims of gangs for which others are evicted, by outcome: made, or dropped before " +
			"the gang was granted what they leave. Made minus dropped: completed or in progress."})
	EvictedGangs = declare(Metric{Name: "basalt_evicted_gangs_total", Kind: Counter, Labels: []string{"rule"},
		Help: "Gangs evicted, by rule: reclaim (a queue takes back what it deserves), preempt (a higher priority in the " +
			"same queue) or stale (they lost pods, and nothing could replace these)."})
	CondemnedPods = declare(Metric{Name: "basalt_evicted_surplus_pods_total", Kind: Counter, Labels: []string{"rule"},
		Help: "Pods above the minimum of their gangs that are evicted for others while their gangs run on, by rule."})
	CoordinatorReservations     = declare(Metric{Name: "basalt_coordinator_reservations", Kind: Gauge, Help: "Gangs that hold a reservation."})
	CoordinatorWaiting          = declare(Metric{Name: "basalt_coordinator_waiting_requests", Kind: Gauge, Help: "Requests waiting for quota."})
	CoordinatorMessages         = declare(Metric{Name: "basalt_coordinator_messages_total", Kind: Counter, Labels: []string{"kind"}, Help: "Messages sent to shards, by type.", Absent: "no such message was sent"})
	CoordinatorBrokenInvariants = declare(Metric{Name: "basalt_coordinator_broken_invariants_total", Kind: Counter, Help: "Broken invariants of Basalt's own; each is logged at error level. Anything above 0 is a bug."})
	StoreSize                   = declare(Metric{Name: "basalt_control_store_size_bytes", Kind: Gauge, Labels: []string{"endpoint"},
		Help: "Size of the control store's database at an endpoint, read every 15 s by each coordinator.", Absent: "the endpoint does not respond"})
	StoreSizeInUse = declare(Metric{Name: "basalt_control_store_size_in_use_bytes", Kind: Gauge, Labels: []string{"endpoint"},
		Help: "The part of the size that is in use. Defragmentation frees the rest.", Absent: "the endpoint does not respond"})
	StoreQuota = declare(Metric{Name: "basalt_control_store_quota_bytes", Kind: Gauge, Labels: []string{"endpoint"},
		Help: "The size at which the control store refuses writes.", Absent: "the endpoint does not respond, or does not say"})
)

// Of `basalt certs`.
var (
	_ = section("Issuer of certificates")

	CertsCheck = declare(Metric{Name: "basalt_certs_check_timestamp_seconds", Kind: Gauge,
		Help: "When basalt certs had last checked everything, and issued what had to be issued, in Unix time; " +
			"0 if no check succeeded since it was started."})
	CertsFailures = declare(Metric{Name: "basalt_certs_failures_total", Kind: Counter,
		Help: "Checks that failed and are repeated."})
)

// Of the auditor.
var (
	_ = section("Auditor")

	AuditViolations = declare(Metric{Name: "basalt_audit_violations_total", Kind: Counter, Labels: []string{"kind"},
		Help: "Objects for which an invariant was found broken, by kind.", Was: "basalt_audit_violations"})
	AuditStanding = declare(Metric{Name: "basalt_audit_standing", Kind: Gauge, Labels: []string{"kind", "what"},
		Help: "Conditions that are violations only when they last (leaks, overcommitment, partial gangs) and still hold.", Absent: "none holds"})
	AuditCurrent = declare(Metric{Name: "basalt_audit_current_timestamp_seconds", Kind: Gauge,
		Help: "When the auditor had last judged all that the control store held, in Unix time.", Absent: "it never had", Was: "basalt_audit_seconds_since_current"})
	AuditRevision = declare(Metric{Name: "basalt_audit_revision", Kind: Gauge, Help: "Newest revision of the control store that was judged."})
	AuditBehind   = declare(Metric{Name: "basalt_audit_behind_revisions", Kind: Gauge, Help: "Revisions of the control store that were not judged yet."})
	AuditBlind    = declare(Metric{Name: "basalt_audit_blind_seconds_total", Kind: Counter, Help: "Seconds without sight of the control store or of the API server: nothing that lasts is judged then."})
	AuditGaps     = declare(Metric{Name: "basalt_audit_gaps_total", Kind: Counter, Help: "Times that revisions of the control store were missed: compacted, or another store."})
	AuditRelists  = declare(Metric{Name: "basalt_audit_relists_total", Kind: Counter, Labels: []string{"resource"}, Help: "Lists of a resource of the API server."})
	AuditPods     = declare(Metric{Name: "basalt_audit_pods", Kind: Gauge, Help: "Pods that the auditor knows.", Was: `basalt_audit_known{what="pods"}`})
	AuditGangs    = declare(Metric{Name: "basalt_audit_gangs", Kind: Gauge, Help: "Gangs that the auditor knows.", Was: `basalt_audit_known{what="gangs"}`})
	AuditIntents  = declare(Metric{Name: "basalt_audit_intents", Kind: Gauge, Help: "Intent records that the auditor knows.", Was: `basalt_audit_known{what="intents"}`})
)
