package visibility

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// discovery returns the documents by which the API server learns what is served here. It asks for them every half a
// minute, to see whether somebody answers, and hands the last one to each client that lists all APIs. So they are
// answered to everybody, at once and without a review: they say what this file says.
//
// Only subresources are listed. Programs that go through all resources that can be listed, and `kubectl get queues`,
// are to find the objects of scheduling.basalt.dev alone.
//
// There is no OpenAPI document: answers have no schema that a server would check, and the API server does without.
func discovery() map[string]any {
	version := metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + Version, Version: Version}
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: Group,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
	resource := func(name, kind string, namespaced bool, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
	}
	return map[string]any{
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{group}},
		"/apis/" + Group: group,
		Aggregated: metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: version.GroupVersion,
			APIResources: []metav1.APIResource{
				resource("gangs/why", "Why", true, "get"),
				resource("queues/why", "WhyQueue", true, "get"),
				resource("shards/drain", "Drain", false, "get", "update", "delete"),
			}},
	}
}
