package certs

// DNS names in certificates. They state a role; no address is looked up under them.
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
)
