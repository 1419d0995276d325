// Package trace reads what a real cluster ran: the "openb" lists of Alibaba's cluster-trace-gpu-v2023.
//
// It decides nothing about how a trace is replayed. It refuses a file it does not understand, and names the file, the line
// and the column: a trace that is read half is a wrong figure.
package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Node of an openb list.
type Node struct {
	Name      string
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int64
	Model     string // of its GPUs, "" without
}

// Pod of an openb list.
type Pod struct {
	Name      string
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int64
	GPUMilli  int64    // of each of GPUs
	Models    []string // that it accepts, empty for any
	Created   int64    // seconds, as all times; the order of the list is the order of arrival where they are equal
	Deleted   int64
	Scheduled int64 // -1 when it never was
}

// Lives is for how long a pod ran, at least a second.
func (p Pod) Lives() int64 {
	from := p.Scheduled
	if from < 0 {
		from = p.Created
	}
	return max(1, p.Deleted-from)
}

// The most that a cell may hold: far above any machine, far below where sums leave int64.
const mostAmount = int64(1) << 40

// Openb reads a folder with one list of nodes and the named list of pods: "default" is openb_pod_list_default.csv.
func Openb(dir, list string) ([]Node, []Pod, error) {
	nodes, err := openbNodes(filepath.Join(dir, "openb_node_list_all_node.csv"))
	if err != nil {
		return nil, nil, err
	}
	pods, err := openbPods(filepath.Join(dir, "openb_pod_list_"+list+".csv"))
	if err != nil {
		return nil, nil, err
	}
	return nodes, pods, nil
}

func openbNodes(file string) ([]Node, error) {
	var out []Node
	err := table(file, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(r row) error {
		n := Node{Name: r.text("sn"), Model: r.text("model")}
		err := errors.Join(r.amount("cpu_milli", &n.MilliCPU), r.amount("memory_mib", &n.MemoryMiB), r.amount("gpu", &n.GPUs))
		if n.Name == "" {
			err = errors.Join(err, r.bad("sn", "is empty"))
		}
		out = append(out, n)
		return err
	})
	return out, err
}

func openbPods(file string) ([]Pod, error) {
	var out []Pod
	err := table(file, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time", "scheduled_time"}, func(r row) error {
		p := Pod{Name: r.text("name"), Scheduled: -1}
		err := errors.Join(r.amount("cpu_milli", &p.MilliCPU), r.amount("memory_mib", &p.MemoryMiB), r.amount("num_gpu", &p.GPUs),
			r.amount("gpu_milli", &p.GPUMilli), r.amount("creation_time", &p.Created), r.amount("deletion_time", &p.Deleted))
		if r.text("scheduled_time") != "" {
			err = errors.Join(err, r.amount("scheduled_time", &p.Scheduled))
		}
		if p.GPUMilli > 1000 {
			err = errors.Join(err, r.bad("gpu_milli", "is above 1000, the whole of one"))
		}
		if spec := r.text("gpu_spec"); spec != "" {
			p.Models = strings.Split(spec, "|")
		}
		out = append(out, p)
		return err
	})
	return out, err
}

// row is one line of a table.
type row struct {
	reader *csv.Reader
	file   string
	column map[string]int
	cells  []string
}

func (r row) text(column string) string { return r.cells[r.column[column]] }

func (r row) bad(column, what string) error {
	line, at := r.reader.FieldPos(r.column[column])
	return fmt.Errorf("%s:%d:%d: %s %s", r.file, line, at, column, what)
}

// amount reads a whole number that is not negative; some lists write it with a point and nothing behind it.
func (r row) amount(column string, to *int64) error {
	text := r.text(column)
	v, err := strconv.ParseInt(strings.TrimSuffix(text, ".0"), 10, 64)
	if err != nil || v < 0 || v > mostAmount {
		return r.bad(column, fmt.Sprintf("is %q, not a whole number from 0 to %d", text, mostAmount))
	}
	*to = v
	return nil
}

// table reads a CSV file with a header that has at least the given columns, in any order.
func table(file string, columns []string, each func(row) error) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	reader := csv.NewReader(f)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("read trace: %s: header: %w", file, err)
	}
	r := row{reader: reader, file: file, column: map[string]int{}}
	for _, c := range columns {
		i := slices.Index(header, c)
		if i < 0 {
			return fmt.Errorf("read trace: %s:1: there is no column %s", file, c)
		}
		r.column[c] = i
	}
	for {
		r.cells, err = reader.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read trace: %s: %w", file, err)
		}
		if err := each(r); err != nil {
			return fmt.Errorf("read trace: %w", err)
		}
	}
}
