package fault

// The mechanisms that decide who gets what, and when. Each may be switched off alone, as a bug is switched on: what
// gets worse without one is the rent that it pays. The table in bench/README.md is made by them. For two others a bug
// of above does the same: EndlessEarmark has no windows, BandThreePasses no bars.
const (
	WithoutShares       Fault = "without-shares"       // coordinator: above what they deserve, queues come by age
	WithoutEarmarks     Fault = "without-earmarks"     // coordinator: no quota is kept for a large gang
	WithoutPatience     Fault = "without-patience"     // coordinator: nobody keeps what it holds while it lacks room
	WithoutSupply       Fault = "without-supply"       // coordinator: more is admitted than the nodes have
	WithoutTolerated    Fault = "without-tolerated"    // coordinator: nothing is admitted above what the nodes have
	WithoutIdle         Fault = "without-idle"         // coordinator: what lies idle counts against others
	WithoutUnplaced     Fault = "without-unplaced"     // coordinator: what is charged and found no room does, too
	WithoutExpected     Fault = "without-expected"     // coordinator: all that wait for nodes are told so
	WithoutLasting      Fault = "without-lasting"      // coordinator: preemptionDelay counts from the first denial
	WithoutDisplacement Fault = "without-displacement" // coordinator: who was evicted may evict in turn
	WithoutSurplus      Fault = "without-surplus"      // coordinator: gangs are evicted as a whole alone
	WithoutMend         Fault = "without-mend"         // shard/home: a gang whose commit lost a hold starts over
	WithoutStall        Fault = "without-stall"        // shard/home: who holds too little keeps that
)
