package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeMap is all nodes, by zone and rack.
type nodeMap struct {
	At       time.Time
	Zones    []zone
	Total    int
	Left     bool // more than are shown
	Ready    int
	Cordoned int
	NotReady int
}

type zone struct {
	Name  string
	Racks []rack
}

type rack struct {
	Name                      string
	Total                     int
	Ready, Cordoned, NotReady int
	Cells                     string // a letter for each node, in the order of their names: r, c, n
}

// rackLabels are those by which racks are told apart, the first that a node has.
var rackLabels = []string{"topology.kubernetes.io/rack", "nvidia.com/gpu.clique"}

// readNodes lists nodes as rows of a table with their metadata, a tenth of what they are, and page by page.
func readNodes(ctx context.Context, v *viewer) (*nodeMap, error) {
	type place struct{ zone, rack string }
	type node struct {
		name  string
		state byte
	}
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
			n, in := node{o.Name, 'n'}, place{o.Labels[corev1.LabelTopologyZone], ""}
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
		r := rack{Name: in.rack, Total: len(nodes)}
		cells := make([]byte, len(nodes))
		for i, n := range nodes {
			cells[i] = n.state
			switch n.state {
			case 'r':
				r.Ready++
			case 'c':
				r.Cordoned++
			default:
				r.NotReady++
			}
		}
		r.Cells = string(cells)
		if n := len(out.Zones); n == 0 || out.Zones[n-1].Name != in.zone {
			out.Zones = append(out.Zones, zone{Name: in.zone})
		}
		z := &out.Zones[len(out.Zones)-1]
		z.Racks = append(z.Racks, r)
		out.Ready, out.Cordoned, out.NotReady = out.Ready+r.Ready, out.Cordoned+r.Cordoned, out.NotReady+r.NotReady
	}
	return out, nil
}
