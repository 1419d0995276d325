// Package console shows people in a browser what waits for what: their gangs, one gang's life, the queues, the cluster.
// It is what `basalt console` serves, in a cluster and on a laptop.
//
// It decides who may look and what a page shows. It knows little itself: PodGroups and Queues, which it watches at
// the API server, one watch of each however many browsers there are. Everything else is asked when somebody looks,
// with the rights of whoever looks: pods, events and nodes of the API server; `why`, what-if and the status of
// Basalt, by the API that `basalt why` uses (package visibility). The sentences are those of that package's
// functions.
//
// # Why it does not listen to the shards
//
// The first sketch had a list and a stream on the visibility API, and one connection from the console to each shard
// and to the coordinator. The statuses of PodGroups and Queues say the same already: reason, message, position,
// conditions; charged, deserved, wanted, fair shares. Their homes write them for everybody, at most every two
// seconds. So a watch at the API server costs the shards nothing at all, needs no new answer, no new right at a
// shard, and no review there of what a namespace may see. It goes on when a shard dies, and when the protocol between
// processes changes. What it costs is one more watch of two kinds at the API server. So there are no lists and no
// streams on the visibility API.
//
// # Who sees what
//
// In a cluster a viewer logs in with a bearer token. The console keeps it in memory, for 15 minutes after the last
// page, and asks everything with it: who that is (SelfSubjectReview), what he may do (SelfSubjectAccessReview), and
// what Basalt says. So the console's own account may do nothing but get, list and watch PodGroups and Queues; it may
// not even create a TokenReview, and nothing can be had by way of it that its viewers have no right to. On a laptop
// the viewer is whoever opened the URL that was printed, once, and has the rights of the kubeconfig.
//
// A viewer of one namespace learns nothing of another:
//
//   - A page is reviewed before anything is looked up, with the same refusal whether or not there is such an object.
//     Gangs: list PodGroups in all namespaces, or in each one that is named. A gang: get that PodGroup. Queues: list
//     Queues; else those that Basalt says a namespace may use. Cluster: list shards.scheduling.basalt.dev.
//   - Reviews count for 10 s. A stream is reviewed anew each minute, and ends with a refusal.
//   - A stream compares what it would send with what it sent. It carries no number that others' changes would advance,
//     and looks at fixed times.
//   - Counts are of what the viewer may list. What is remembered for all (shares of queues over a day, nodes, statuses)
//     is shown to those whose review says that they might have asked for it now.
//
// # What it refuses
//
// It changes nothing: a change is a command to copy. It has no store: what it remembers of a day is lost with it. There
// are bounds on sessions, streams, requests, questions to Basalt, bytes and time (bounds.go). Pages may load nothing
// from elsewhere and run no script but the one that is built in (Content-Security-Policy), and work without it but for
// updates and the map of nodes. No library is vendored, and nothing is built beforehand.
//
// Gangs are listed that have a PodGroup of Basalt's. Pods without one are listed apart, with the viewer's own right to
// list them; PodGroups of other APIs are not listed, but have their page, for that asks Basalt.
package console
