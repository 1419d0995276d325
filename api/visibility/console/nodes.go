package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/visibility"
)

// nodeMap is all nodes, by zone and rack, as far as the API server and Basalt told.
type nodeMap struct {
	At        time.Time
	Total     int
	Left      bool // more than are kept
	Ready     int
	Cordoned  int
	NotReady  int
	Resources []string // of which it is known how much is free
	FreeNot   string   // why that is not known, or not of all

	racks []rackNodes
}

// rackNodes are the nodes of a rack, in the order of their names.
type rackNodes struct {
	zone, name string
	nodes      []node
}

type node struct {
	name  string
	state byte   // a letter: ready, cordoned, not ready
	free  []int8 // percent of each resource, -1 for none of it; nil if that is not known
}

// zone is what is shown of one, with what is free of one resource.
type zone struct {
	Name  string
	Racks []rack
}

type rack struct {
	Name                      string
	Total                     int
	Ready, Cordoned, NotReady int
	Free                      [len(freeWords)]int // how many of the ready ones are in each class of free shares
	Unknown                   int                 // or are not known, or have none
	// A letter for each node, in the order of their names: c and n for those that are cordoned and not ready; of the
	// others the tenth that is free, from 0 to 9, and a for all of it, - for none, and u for not known.
	Cells string
}

// freeWords are classes of free shares.
var freeWords = [...]string{"under 10 %", "10 to 49 %", "50 to 99 %", "all"}

func freeClass(percent int8) int {
	switch {
	case percent < 10:
		return 0
	case percent < 50:
		return 1
	case percent < 100:
		return 2
	}
	return 3
}

// zones returns what is shown, with what is free of a resource.
func (m *nodeMap) zones(resource string) (out []zone) {
	which := slices.Index(m.Resources, resource)
	for _, in := range m.racks {
		r, cells := rack{Name: in.name, Total: len(in.nodes)}, make([]byte, len(in.nodes))
		for i, n := range in.nodes {
			switch cells[i] = n.state; n.state {
			case 'c':
				r.Cordoned++
				continue
			case 'n':
				r.NotReady++
				continue
			}
			r.Ready++
			switch {
			case which < 0 || which >= len(n.free):
				cells[i] = 'u'
				r.Unknown++
			case n.free[which] < 0:
				cells[i] = '-'
				r.Unknown++
			default:
				cells[i] = "0123456789a"[min(n.free[which], 100)/10]
				r.Free[freeClass(n.free[which])]++
			}
		}
		r.Cells = string(cells)
		if n := len(out); n == 0 || out[n-1].Name != in.zone {
			out = append(out, zone{Name: in.zone})
		}
		z := &out[len(out)-1]
		z.Racks = append(z.Racks, r)
	}
	return out
}

// addFree fills in what Basalt says is free.
func (m *nodeMap) addFree(said *visibility.NodeShares, err error) {
	if err != nil {
		m.FreeNot = "How full they are is not known."
		switch code := problemOf(err).code; {
		case code == http.StatusNotFound:
			m.FreeNot = "How full they are is not known: the shard that was asked is of an earlier version."
		case code == http.StatusForbidden:
			m.FreeNot += " It takes the ClusterRole basalt-status, and the right to list nodes."
		case code >= http.StatusInternalServerError: // what it says may name whoever asked
			m.FreeNot += " Basalt does not answer."
		}
		return
	}
	m.Resources = said.Resources
	if len(said.Silent) > 0 {
		m.FreeNot = "How full the nodes of these shards are is not known, which do not answer: " +
			api.Shorten(strings.Join(said.Silent, ", "), 200)
	}
	free := make(map[string][]int8, len(said.Nodes))
	for _, n := range said.Nodes {
		if !n.OutOfSync {
			free[n.Name] = n.Free
		}
	}
	for _, in := range m.racks {
		for i := range in.nodes {
			in.nodes[i].free = free[in.nodes[i].name]
		}
	}
}

// rackLabels are those by which racks are told apart, the first that a node has.
var rackLabels = []string{"topology.kubernetes.io/rack", "nvidia.com/gpu.clique"}

// readNodes lists nodes as rows of a table with their metadata, a tenth of what they are, and page by page.
func readNodes(ctx context.Context, v *viewer) (*nodeMap, error) {
	type place struct{ zone, rack string }
	at, out := map[place][]node{}, &nodeMap{At: time.Now()}
	for next := ""; ; {
		request := v.core.RESTClient().Get().Resource("nodes").Param("limit", "500").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if next != "" {
			request = request.Param("continue", next)
		}
		raw, err := request.Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		var table metav1.Table
		if err := json.Unmarshal(raw, &table); err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		status := slices.IndexFunc(
			table.ColumnDefinitions,
			func(c metav1.TableColumnDefinition) bool { return c.Name == "Status" },
		)
		for _, row := range table.Rows {
			var o metav1.PartialObjectMetadata
			if json.Unmarshal(row.Object.Raw, &o) != nil || status < 0 || status >= len(row.Cells) {
				continue
			}
			if out.Total == maxNodes {
				out.Left = true
				break
			}
			words, _ := row.Cells[status].(string)
			n, in := node{name: o.Name, state: 'n'}, place{o.Labels[corev1.LabelTopologyZone], ""}
			for _, label := range rackLabels {
				if in.rack = o.Labels[label]; in.rack != "" {
					break
				}
			}
			list := strings.Split(words, ",")
			switch {
			case !slices.Contains(list, "Ready"):
			case slices.Contains(list, "SchedulingDisabled"):
				n.state = 'c'
			default:
				n.state = 'r'
			}
			out.Total++
			at[in] = append(at[in], n)
		}
		if next = table.Continue; next == "" || out.Left {
			break
		}
	}
	places := []place{}
	for in := range at {
		places = append(places, in)
	}
	slices.SortFunc(
		places,
		func(a, b place) int { return cmp.Or(cmp.Compare(a.zone, b.zone), cmp.Compare(a.rack, b.rack)) },
	)
	for _, in := range places {
		nodes := at[in]
		slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.name, b.name) })
		out.racks = append(out.racks, rackNodes{in.zone, in.rack, nodes})
		for _, n := range nodes {
			switch n.state {
			case 'r':
				out.Ready++
			case 'c':
				out.Cordoned++
			default:
				out.NotReady++
			}
		}
	}
	return out, nil
}
