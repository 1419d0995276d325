package certs

// DNS names in certificates. They state a role; no address is looked up under them, but that of the Service.
const (
	// NameProcess is in the certificate of every shard and coordinator: peers and the control store admit it.
	NameProcess = "basalt"
	// NameShard and NameCoordinator say which of the two a process is.
	NameShard       = "shard.basalt"
	NameCoordinator = "coordinator.basalt"
	// NameOperator is of `basalt status` and `basalt audit`: it may ask processes for their status, and use the control store.
	NameOperator = "operator.basalt"
	// NameStorePeer is of members of the control store, among themselves.
	NameStorePeer = "etcd-peer.basalt"

	// VisibilityService is the Service at which the API server reaches shards with users' questions. With its
	// namespace and "svc" it is in the certificate of every shard.
	VisibilityService = "basalt-visibility"
)

// NameVisibility is the name under which shards of a namespace answer users.
func NameVisibility(namespace string) string { return VisibilityService + "." + namespace + ".svc" }
