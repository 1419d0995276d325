// Package visibility answers people, over HTTPS and with their own rights: tenants, why their gangs wait and how their queues stand; and administrators, who is there,
// who owns what, and what waits. It is what `basalt why`, `basalt status` and `basalt drain` call, and programs may call it, too:
//
//	GET /v1/namespaces/NAMESPACE/gangs/NAME/why
//	GET /v1/queues/NAME/why
//	GET /v1/namespaces/NAMESPACE/queues?queue=QUEUE
//	GET /v1/namespaces/NAMESPACE/queues/NAME/why
//	GET /v1/what-if?change=QUEUE:FIELD=VALUE&change=...&gang=NAMESPACE/NAME (or queue=QUEUE, or planned=queue=QUEUE,cpu=8,...&namespace=NAMESPACE)
//	GET /v1/status?queue=QUEUE&gang=NAMESPACE/NAME&gangs=N
//	GET /v1/nodes
//	GET, PUT and DELETE /v1/shards/NAME/drain
//
// A gang's NAME is that of a PodGroup of any kind, or of a pod. PUT has a shard give its buckets to the others, DELETE
// has it take its part again, GET says how far it is; all three can be repeated. The answers are a Why, a WhyQueue, a
// WhatIf, a Status, NodeShares and a Drain in JSON.
//
// With /apis/visibility.basalt.dev/v1beta1 in place of /v1, the API server forwards the same requests from users that
// it has authenticated, and whom it lets ask (deploy/visibility.yaml); package frontproxy finds out whom it names.
//
// It decides who may ask. The API server has named the user, or the request carries a bearer token, which the API
// server reviews (TokenReview); then the API server is asked whether that user may do this (SubjectAccessReview).
// Nothing is said before both:
//
//   - why: get that PodGroup or pod. Not even whether there is such an object is said before, and an answer says nothing of others' objects
//     but how many gangs and queues wait, and what its condition names. Of the queue of the gang it says the amounts, of the ancestors how
//     they stand. So a user learns hardly more than `kubectl get` could show.
//   - why of a queue: get that Queue. It says what the status of the Queue says, and names of the gangs in it those that the user may get.
//   - queues, and why of a queue, of a namespace: create PodGroups there. Only queues are answered for that admit the
//     namespace, with the
//     amounts of their ancestors; of others it is not even told whether they exist.
//   - what if: get each Queue that the question names, or in a namespace that it admits create PodGroups; and the gang
//     that it is about; of a gang that does not exist, create PodGroups in its
//     namespace, for the answer says what that namespace may use. Other queues and gangs are shown that the user may get, and else only
//     counted. What would be evicted is counted for everybody; amounts are said to those who may get all Queues.
//   - status: list shards.scheduling.basalt.dev in the whole cluster. It shows gangs of all namespaces, so it needs a right of its own:
//     tenants may be given Queues to list, and `view` in a namespace.
//   - nodes: that, and list nodes. It says how full each node is, which else only those see who may list all pods.
//   - drain: create shards.scheduling.basalt.dev/drain for that shard. What was reviewed a moment ago does not count for an order, and the
//     shard that is drained has the API server review the user itself. Of the one that took the request it believes
//     only who the user
//     is whom the API server named: such a request has no token to hand on.
//
// There are no objects of the resource shards. Like signers of certificates.k8s.io it exists for rights alone.
//
// What it costs is bounded: requests a second in all, by tenants in turn, and for each user, statuses at a time,
// reviews that are remembered, bytes, and time. Only the documents of discovery are given to everybody: they are always
// the same.
//
// It leaves to the shards what they know. Any shard answers: it calls the one that drives the gang and the coordinator, for a status all
// processes, and for a drain the shard that is meant. Collect and Order do that for a program that reads the control store itself, too.
package visibility
