package check

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var pictureFile = flag.String("picture", "", "run a load for some minutes, and write the data of the overview dashboard to this file")

// remove deletes gangs with their pods, some of which may not exist.
func (s *stage) remove(names ...string) {
	now := int64(0)
	for _, name := range names {
		for i := range 3 {
			_ = s.core.CoreV1().Pods("default").Delete(s.t.Context(), fmt.Sprint(name, "-", i), metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err := s.basalt.Delete().Namespace("default").Resource("podgroups").Name(name).Do(s.t.Context()).Error(); err != nil {
			s.t.Error(err)
		}
	}
}

// picture writes what the overview dashboard shows while gangs come and go, for a program that draws it.
func (s *stage) picture() {
	if *pictureFile == "" {
		return
	}
	began := time.Now()
	for i := 0; time.Since(began) < 3*time.Minute; i++ {
		gangs := func(i int) (names []string) {
			for j := range 6 + i%7 {
				names = append(names, fmt.Sprintf("load-%d-%d", i, j))
			}
			if i%4 == 0 { // one of them fills its queue
				names = append(names, fmt.Sprint("big-", i))
			}
			return names
		}
		for j, name := range gangs(i) {
			if j == 6+i%7 {
				s.gang(name, leaf(3), 2, 2, "3200m", "64Mi")
			} else {
				s.gang(name, leaf(i*7+j), 3, 3, "200m", "64Mi")
			}
		}
		if i >= 12 {
			s.remove(gangs(i - 12)...)
		}
		if i == 60 {
			s.failover()
		}
		s.scrape()
		time.Sleep(time.Second)
	}
	store := newStore(s.t)
	for _, x := range s.scrapes {
		store.add(x)
	}
	type line struct {
		Legend string
		Points [][2]float64
	}
	type drawn struct {
		Type, Title, Unit string
		Grid              map[string]int
		Lines             []line
	}
	text, err := os.ReadFile(monitoring + "dashboards/overview.json")
	if err != nil {
		s.t.Fatal(err)
	}
	var full struct {
		Panels []struct {
			ID          int
			GridPos     map[string]int
			FieldConfig struct{ Defaults struct{ Unit string } }
		}
	}
	if err := json.Unmarshal(text, &full); err != nil {
		s.t.Fatal(err)
	}
	var out []drawn
	for _, d := range dashboards(s.t) {
		if d.UID != "basalt-overview" {
			continue
		}
		for i, p := range d.Panels {
			one := drawn{Type: p.Type, Title: p.Title, Unit: full.Panels[i].FieldConfig.Defaults.Unit, Grid: full.Panels[i].GridPos}
			for _, target := range p.Targets {
				q, err := store.engine.NewRangeQuery(s.t.Context(), store.db, nil, expand(d, target.Expr, "15s"), began.Add(15*time.Second), s.last().at, 2*time.Second)
				if err != nil {
					s.t.Fatal(err)
				}
				m, err := q.Exec(s.t.Context()).Matrix()
				if err != nil {
					s.t.Fatal(err)
				}
				for _, series := range m {
					l := line{Legend: target.LegendFormat}
					series.Metric.Range(func(label labels.Label) {
						l.Legend = strings.ReplaceAll(l.Legend, "{{"+label.Name+"}}", label.Value)
					})
					for _, f := range series.Floats {
						if f.F == f.F { // not NaN
							l.Points = append(l.Points, [2]float64{float64(f.T) / 1000, f.F})
						}
					}
					one.Lines = append(one.Lines, l)
				}
				q.Close()
			}
			out = append(out, one)
		}
	}
	file, err := os.Create(*pictureFile)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	if err := json.NewEncoder(file).Encode(out); err != nil {
		s.t.Fatal(err)
	}
}
