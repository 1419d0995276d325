package trace

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestOpenb(t *testing.T) {
	nodes, pods, err := Openb("testdata/openb", "default")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Node{"made-up-1", 16000, 65536, 2, "P100"}); len(nodes) != 3 || nodes[1] != want {
		t.Errorf("nodes: %+v", nodes)
	}
	want := []Pod{
		{"a", 4000, 8192, 1, 460, nil, 0, 100, 5},
		{"b", 8000, 16384, 2, 1000, []string{"T4", "P100"}, 10, 200, 12},
		{"c", 2000, 4096, 0, 0, nil, 20, 300, -1},
	}
	if !reflect.DeepEqual(pods, want) {
		t.Errorf("pods: %+v", pods)
	}
	if pods[0].Lives() != 95 || pods[2].Lives() != 280 {
		t.Errorf("they live %d and %d", pods[0].Lives(), pods[2].Lives())
	}
}

// The published lists, where they are: BASALT_OPENB names their folder.
func TestPublishedOpenb(t *testing.T) {
	dir := os.Getenv("BASALT_OPENB")
	if dir == "" {
		t.Skip("BASALT_OPENB does not name a folder with the openb lists")
	}
	nodes, pods, err := Openb(dir, "default")
	if err != nil {
		t.Fatal(err)
	}
	var milli, gpus int64
	for _, n := range nodes {
		milli, gpus = milli+n.MilliCPU, gpus+n.GPUs
	}
	if len(nodes) != 1523 || len(pods) != 8152 || milli != 125_514_000 || gpus != 6212 {
		t.Errorf("%d nodes, %d pods, %d millicores, %d GPUs", len(nodes), len(pods), milli, gpus)
	}
}

func TestBadOpenb(t *testing.T) {
	for _, test := range []struct{ name, from, to, want string }{
		{"number", "16000,65536,2,P100", "16000,x,2,P100", `openb_node_list_all_node.csv:3:17: memory_mib is "x", not a whole number from 0 to`},
		{"negative", "16000,65536,2,P100", "-1,65536,2,P100", `:3:11: cpu_milli is "-1"`},
		{"huge", "16000,65536,2,P100", "99999999999999999999,65536,2,P100", `:3:11: cpu_milli is "99999999999999999999"`},
		{"no name", "made-up-2,", ",", `:4:1: sn is empty`},
		{"column", "memory_mib", "memory", `openb_node_list_all_node.csv:1: there is no column memory_mib`},
		{"short line", "made-up-2,8000,32768,0,", "made-up-2,8000", "openb_node_list_all_node.csv: record on line 4: wrong number of fields"},
		{"too much of a GPU", "1,460,", "1,1001,", "openb_pod_list_default.csv:2:15: gpu_milli is above 1000"},
		{"time", "20,300,", "20,never,", `:4:32: deletion_time is "never"`},
		{"no list", "", "", "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range []string{"openb_node_list_all_node.csv", "openb_pod_list_default.csv"} {
				content, err := os.ReadFile(filepath.Join("testdata/openb", file))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(content), test.from, test.to, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			list := "default"
			if test.from == "" {
				list = "other"
			}
			if _, _, err := Openb(dir, list); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}
