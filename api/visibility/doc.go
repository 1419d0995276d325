// Package visibility answers what users ask about their own gangs: why one waits, its place in the order, what it lacks, and what happens
// next. It is what `basalt why` calls, and programs may call it, too:
//
//	GET /v1/namespaces/NAMESPACE/gangs/NAME/why
//
// NAME is a PodGroup of any kind, or a pod. The answer is a Why in JSON.
//
// It decides who may ask. A request carries a bearer token, which the API server reviews (TokenReview); then the API server is asked
// whether that user may get the very object (SubjectAccessReview). Nothing is said before both, not even whether there is such an object,
// and an answer says nothing of others' objects but how many gangs wait. So a user learns no more than `kubectl get` could show.
//
// What it costs is bounded: requests a second in all and for each user, reviews that are remembered, bytes, and time.
//
// It leaves to the shards what they know. Any shard answers: it calls the one that drives the gang.
package visibility
