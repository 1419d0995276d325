package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api/visibility"
)

// clusterData is what the page of the cluster shows.
type clusterData struct {
	State    *clusterState
	Trouble  string
	NodesNot string // why nodes are not shown
	Nodes    *nodeMap
	Zones    []zone
	Words    []string // of classes of free shares
	Tabs     []link   // resources of which it is shown how much is free
	Resource string
	Waiting  []gangLine
	Takeover []takeover
}

type gangLine struct {
	visibility.Gang
	URL string
}

// maxWaiting bounds how many gangs the page of the cluster names.
const maxWaiting = 20

// cluster is the page of shards, coordinators and nodes, for those who may see Basalt's status.
func (s *server) cluster(ctx context.Context, q *query) (*view, error) {
	if err := q.viewer.may(ctx, seeCluster, q.reviews); err != nil {
		return nil, err
	}
	d := &clusterData{}
	state, err := s.statuses.get(ctx, statusFor, func() (*clusterState, error) { return s.status(q.viewer) })
	if d.State = state; err != nil {
		d.Trouble = problemOf(err).text
	}
	if state != nil {
		d.Takeover = takeoversOf(state, s.objects.epochSeen)
		for _, g := range state.Gangs[:min(len(state.Gangs), maxWaiting)] {
			namespace, name, _ := strings.Cut(g.Gang, "/")
			d.Waiting = append(d.Waiting, gangLine{g, gangURL(namespace, name)})
		}
	}
	d.Nodes, err = s.nodesFor(ctx, q)
	if err != nil {
		d.NodesNot = problemOf(err).text
	} else {
		d.Resource, d.Words = d.Nodes.resource(q.values.Get("resource")), freeWords[:]
		d.Zones = d.Nodes.zones(d.Resource)
		for _, name := range d.Nodes.Resources {
			d.Tabs = append(d.Tabs, link{name, "/cluster?resource=" + url.QueryEscape(name), name == d.Resource})
		}
	}
	return &view{Title: "Cluster", Body: "cluster", Data: d}, nil
}

// status asks Basalt, once for all who look. The last one that was had goes on being shown when it does not answer.
func (s *server) status(v *viewer) (*clusterState, error) {
	ctx, cancel := context.WithTimeout(s.ctx, pageWithin)
	defer cancel()
	s.statuses.mu.Lock()
	before := s.statuses.value
	s.statuses.mu.Unlock()
	is := &clusterState{At: time.Now()}
	if err := s.ask(ctx, v, fmt.Sprint("/status?gangs=", maxWaiting), &is.Status); err != nil {
		return before, err
	}
	slices.SortFunc(is.Shards, func(a, b visibility.Shard) int { return cmp.Compare(a.Name, b.Name) })
	return is, nil
}

// nodesFor returns the nodes, for a viewer who may list them.
func (s *server) nodesFor(ctx context.Context, q *query) (*nodeMap, error) {
	if err := q.viewer.may(ctx, listNodes, q.reviews); err != nil {
		return nil, err
	}
	s.mu.Lock()
	within := max(nodesFor, nodesShare*s.nodesTook)
	s.mu.Unlock()
	return s.nodes.get(ctx, within, func() (*nodeMap, error) {
		ctx, cancel := context.WithTimeout(s.ctx, 4*pageWithin)
		defer cancel()
		began := time.Now()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.nodesTook = time.Since(began)
		}()
		nodes, err := readNodes(ctx, q.viewer)
		if err != nil {
			return nil, err
		}
		var free visibility.NodeShares
		nodes.addFree(&free, s.ask(ctx, q.viewer, "/nodes", &free))
		return nodes, nil
	})
}

// resource returns that of which it is shown how much is free, "" if nothing is known.
func (m *nodeMap) resource(wanted string) string {
	switch {
	case slices.Contains(m.Resources, wanted):
		return wanted
	case len(m.Resources) > 0:
		return m.Resources[0]
	}
	return ""
}

// cells answers with the nodes for the picture that the script draws.
func (s *server) cells(w http.ResponseWriter, r *http.Request) {
	of, leave, err := s.enter(r, false)
	if err != nil {
		http.Error(w, problemOf(err).text, problemOf(err).code)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	q := &query{Request: r, viewer: of.viewer, reviews: reviewFor, memo: &memo{}}
	err = q.viewer.may(ctx, seeCluster, q.reviews)
	var nodes *nodeMap
	if err == nil {
		nodes, err = s.nodesFor(ctx, q)
	}
	if err != nil {
		http.Error(w, problemOf(err).text, problemOf(err).code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(nodes.zones(nodes.resource(r.URL.Query().Get("resource"))))
}
